"""The cases: each takes a seeded random source and raises AssertionError if damage gets through or crashes."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

import tidegate as tg
from fuzz.damage import damaged, sealed
from fuzz.frames_of import NEXT, piped, topologies, written
from tidegate.errors import CheckpointError, TidegateError
from tidegate.kernel.state import frames
from tidegate.testing import TopologyTestDriver


def bytes_changed(random: Random) -> None:
    """A changed frame is refused: its checksum does not match."""
    one = random.choice(written())
    frame = damaged(one.frame, random)
    try:
        frames.decode(one.kind, frame)
    except CheckpointError:
        return
    assert frame == one.frame, f"{one.where}: taken, though it was changed"


def contents_changed(random: Random) -> None:
    """A frame with a right checksum is refused, or decodes into an object and tables."""
    one = random.choice(written())
    frame = sealed(damaged(one.frame, random))
    try:
        meta, tables = frames.decode(one.kind, frame)
    except CheckpointError:
        return
    assert isinstance(meta, dict)
    assert all(isinstance(table, pa.Table) for table in tables)


def state_changed(random: Random) -> None:
    """An operator with damaged state gives the right rows (it did not read the damaged part), or refuses the state."""
    name = random.choice(list(piped()))
    before, right = piped()[name]
    state = before.state()
    store = random.choice(state.stores)
    held = random.choice([held for held in (store.values, store.log) if held])
    place = random.choice(list(held))
    held[place] = damaged(held[place], random)  # type: ignore[index]
    driver = TopologyTestDriver(topologies()[name], state=state)
    try:
        driver.pipe_batch(NEXT)
    except TidegateError:
        return
    assert driver.read_output() == right, f"{name}: another result from what lay at {place}"


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**64),
    1.5,
    math.nan,
    math.inf,
    "",
    "ts",
    "k",
    "5 minutes",
    "-3 s",
    "a\0b",
    "1e400 days",
    b"k",
    [],
    ["k"],
    ("k", "k"),
    {},
    timedelta(0),
    timedelta(days=-1),
    timedelta.max,
    timedelta(microseconds=1),
    object,
)


def definition(random: Random) -> None:
    """A definition of odd arguments is built, or refused with an error of ours."""

    def odd() -> Any:
        return random.choice(ODD)

    def suppressed() -> Any:
        buffer = random.choice([odd, tg.BufferConfig.unbounded, lambda: tg.BufferConfig.max_records(odd())])()
        if random.random() < 0.5:
            return tg.Suppressed.until_window_closes(buffer)
        clock = random.choice(["stream", "wall", odd()])
        return tg.Suppressed.until_time_limit(odd(), buffer, clock=clock)

    windows: list[Callable[[], Any]] = [
        odd,
        lambda: tg.TimeWindows.of_size_and_grace(odd(), odd()),
        lambda: tg.TimeWindows.of_size_with_no_grace("10 ms").advance_by(odd()),
        lambda: tg.SlidingWindows.of_time_difference_and_grace(odd(), odd()),
        lambda: tg.SessionWindows.of_inactivity_gap_and_grace(odd(), odd()),
        lambda: tg.UnlimitedWindows.start_on(odd()),
        lambda: tg.BatchWindows.of_size(odd()),
        lambda: tg.TimeWindows.of_size_with_no_grace("10 ms"),
    ]
    try:
        key, timestamp = random.choice([("k", "ts"), (odd(), "ts"), ("k", odd()), (odd(), odd())])
        grouped = tg.stream("events", key=key, timestamp=timestamp).group_by_key()
        table = grouped.windowed_by(random.choice(windows)()).count()
        table = table.suppress(suppressed()) if random.random() < 0.5 else table
        TopologyTestDriver(table)
    except TidegateError:
        pass


def join_definition(random: Random) -> None:
    """A join of odd arguments is built, or refused with an error of ours."""

    def odd(*usual: Any) -> Any:
        return random.choice(usual) if random.random() < 0.6 else random.choice(ODD)

    def windows() -> Any:
        made = tg.JoinWindows.of_time_difference_and_grace(odd("10 ms"), odd("5 ms"))
        return random.choice([made, made.before(odd("1 ms")), made.after(odd("1 ms")), random.choice(ODD)])

    try:
        streams = [tg.stream(odd(name), key=odd("k"), timestamp=odd("ts"), stream_time="max") for name in ("a", "b")]
        tables = [tg.table(odd(name), key=odd("k"), timestamp="ts", history=odd("1 s", None)) for name in ("c", "d")]
        more: dict[str, Any] = {"how": odd("inner", "left"), "suffixes": odd(None), "value_joiner": odd(None)}
        grace = odd("1 ms", None)
        joined = random.choice(
            [
                lambda: streams[0].join(odd(*streams), windows(), **more),
                lambda: streams[0].join(odd(*tables), grace=grace, **more),
                lambda: tables[0].join(odd(*tables), **more),
            ]
        )()
        TopologyTestDriver(joined)
    except TidegateError:
        pass


CASES: dict[str, tuple[Callable[[Random], None], int]] = {
    "bytes changed": (bytes_changed, 90),
    "contents changed": (contents_changed, 7),
    "definition": (definition, 1),
    "join definition": (join_definition, 1),
    "state changed": (state_changed, 1),
}
"""Cases by name: the function, and its share in percent."""
