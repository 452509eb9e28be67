"""The form of the stored windows of keys, and when it changes.

    few windows, or a batch with many of their keys    buckets       `windows.window_buckets`
    a batch that writes many and needs few             by key        `windows.windows_by_key`

In front of a bounded buffer windows stay in buckets: the bound is checked over whole buckets.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.kernel.rows import grouping
from tidegate.kernel.rows.layout import Layout
from tidegate.kernel.state.keyed_runs import count_keys
from tidegate.kernel.state.state import State
from tidegate.kernel.windows.stored_windows import Opens, StoredWindows
from tidegate.kernel.windows.window_buckets import WindowBuckets
from tidegate.kernel.windows.windows_by_key import WindowsByKey

_AGAIN = 4
"""Windows go back to buckets if a batch needs this many times the share of windows that made them be stored by key."""


def of(layout: Layout, state: State, opens: Opens) -> StoredWindows:
    """The windows of a state in their current form."""
    return WindowsByKey.of(layout, state, opens) if state.by_key else WindowBuckets(layout, state, opens)


def between_batches(layout: Layout, state: State) -> StoredWindows:
    """The windows of a state between two batches."""
    opens = layout.keyed_windows.open_from_ms(state.closed_through)
    return of(layout, state, Opens(opens, opens))


def for_batch(layout: Layout, state: State, opens: Opens, records: pa.Table | None) -> StoredWindows:
    """The windows in the form for a batch with these records; changes the form if necessary."""
    stored = of(layout, state, opens)
    if isinstance(stored, WindowsByKey) and _needs_most(stored, records):
        return _in_buckets(stored, Opens(opens.before, opens.before), opens)
    return stored


def in_buckets(layout: Layout, state: State) -> WindowBuckets:
    """The windows of a state, moved to buckets if they are stored by key."""
    stored = between_batches(layout, state)
    if isinstance(stored, WindowsByKey):
        return _in_buckets(stored, stored.opens, stored.opens)
    assert isinstance(stored, WindowBuckets)
    return stored


def adapt_form(stored: StoredWindows) -> None:
    """After a batch, change the form if that helps the next batch, and drop versions that no longer count."""
    if isinstance(stored, WindowBuckets):
        if stored.layout.op.buffer is None and stored.writes_much:
            now = Opens(stored.opens.after, stored.opens.after)
            by_key = WindowsByKey.of(stored.layout, stored.state, now)
            for rows in stored.take_all():
                by_key.put(rows)
    elif isinstance(stored, WindowsByKey):
        now = Opens(stored.opens.after, stored.opens.after)
        if stored.useful <= stored.layout.tuning.whole_rows // 2:
            _in_buckets(stored, now, now)
        else:
            stored.tidy()


def _in_buckets(stored: WindowsByKey, now: Opens, opens: Opens) -> WindowBuckets:
    """Move the windows that are needed `now` to buckets. Returns the buckets for a batch with `opens`."""
    rows = WindowsByKey.of(stored.layout, stored.state, now).take_all()
    WindowBuckets(stored.layout, stored.state, now).put(rows)
    return WindowBuckets(stored.layout, stored.state, opens)


def _needs_most(stored: WindowsByKey, records: pa.Table | None) -> bool:
    """Whether the records have so many keys that their windows take less time in buckets."""
    times, many = stored.layout.tuning.whole_times // _AGAIN, stored.useful
    if records is None or records.num_rows * times <= many:
        return False
    return count_keys(grouping.key_hash(stored.layout, records)) * times > many
