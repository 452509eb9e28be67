"""Plans over DataFrames, without Spark: what reads different DataFrames is never taken for one and the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tidegate.dsl import frames
from tidegate.plan import Join, Stream

ORDER = {"partition": "partition", "offset": "offset"}
MINUTES = tg.TimeWindows.of_size_with_no_grace("1 minute")
NEAR = tg.JoinWindows.of_time_difference_with_no_grace("1 minute")


class Frame:
    """A stand-in for a DataFrame: a plan only asks for its columns."""

    columns = ("user", "ts", "partition", "offset")


CLICKS, VIEWS, MORE = Frame(), Frame(), Frame()
"""Three DataFrames with equal columns, whose streams have equal names."""


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_frame(node: Stream, deleted: str | None = None) -> Any:
        return node.frame

    monkeypatch.setattr(frames, "check_frame", check_frame)


def records(frame: Frame) -> tg.KStream:
    return tg.stream(frame, key="user", timestamp="ts", **ORDER)


def joined(left: tg.KStream, right: tg.KStream) -> tg.KStream:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.TidegateWarning)
        return left.join(right, NEAR, suffixes=("_l", "_r"))


def merged(frame: Frame) -> tg.KStream:
    return records(frame).merge(records(MORE))


def counted(frame: Frame) -> tg.KStream:
    return records(frame).group_by_key().windowed_by(MINUTES).count().to_stream()


def count_of_merged(frame: Frame) -> tg.KStream:
    return merged(frame).group_by_key().windowed_by(MINUTES).count().to_stream()


def pairs(frame: Frame) -> tg.KStream:
    return joined(records(frame), records(MORE))


def pairs_of_counts(frame: Frame) -> tg.KStream:
    return joined(counted(frame), counted(MORE))


def rows_of_a_table(frame: Frame) -> tg.KStream:
    return tg.table(frame, key="user", timestamp="ts", **ORDER).to_stream()


STREAMS = [records, merged, counted, count_of_merged, pairs, pairs_of_counts, rows_of_a_table]


def joins_itself(stream: tg.KStream) -> bool:
    assert isinstance(stream.node.table, Join)
    return stream.node.table.right is None


@pytest.mark.parametrize("of", STREAMS)
def test_streams_over_different_dataframes_are_not_joined_as_one(of: Callable[[Frame], tg.KStream]) -> None:
    assert joins_itself(joined(of(CLICKS), of(CLICKS)))
    assert not joins_itself(joined(of(CLICKS), of(VIEWS)))
    assert not joins_itself(joined(of(CLICKS).filter(bool), of(VIEWS).filter(bool)))


def test_streams_with_different_expected_keys_are_not_joined_as_one() -> None:
    def complete(keys: list[str]) -> tg.KStream:
        final = records(CLICKS).group_by_key().windowed_by(MINUTES).emit_strategy(tg.EmitStrategy.on_window_close())
        return final.count(expect_keys=keys).to_stream()

    of_a, of_b = ["A"], ["B"]
    assert joins_itself(joined(complete(of_a), complete(of_a)))
    assert not joins_itself(joined(complete(of_a), complete(of_b)))


@pytest.mark.parametrize("of", STREAMS)
def test_outputs_over_different_dataframes_are_refused(of: Callable[[Frame], tg.KStream]) -> None:
    def count(frame: Frame) -> tg.KTable:
        return of(frame).select_key("user").group_by_key().count()

    tg.outputs(all=count(CLICKS), few=count(CLICKS).filter(bool))
    with pytest.raises(tg.DefinitionError, match="'all' and 'few' are not of one aggregation: they differ in their st"):
        tg.outputs(all=count(CLICKS), few=count(VIEWS).filter(bool))


def test_outputs_of_joins_over_different_dataframes_are_refused() -> None:
    tg.outputs(all=pairs(CLICKS), few=pairs(CLICKS).filter(bool))
    with pytest.raises(tg.DefinitionError, match="'all' and 'few' are not of one aggregation: they differ in their jo"):
        tg.outputs(all=pairs(CLICKS), few=pairs(VIEWS).filter(bool))
