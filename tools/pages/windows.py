"""The pictures of docs/windows."""

from __future__ import annotations

import tidegate as tg
from tools.pages.pictures import Scale, draw, lanes_of, lanes_of_updates


def tumbling() -> str:
    windows = tg.TimeWindows.of_size_and_grace("10 seconds", "5 seconds")
    records = [("A", 2), ("B", 6), ("A", 8), ("A", 13), ("A", 7), ("A", 15), ("A", 4), ("B", 25)]
    moments, lanes = lanes_of(windows, records)
    return draw(
        "Tumbling windows: 10 seconds, 5 seconds of grace",
        "A window leaves when stream time reaches end plus grace. Record 5 comes late but in time, record 7 too late.",
        Scale(0, 35, 5),
        moments,
        lanes,
    )


def hopping() -> str:
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds").advance_by("5 seconds")
    records = [("A", 3), ("A", 7), ("A", 12), ("A", 8), ("A", 21)]
    moments, lanes = lanes_of(windows, records)
    return draw(
        "Hopping windows: 10 seconds, one every 5 seconds, no grace",
        "A record is in several windows. Record 4 is too late for one of its two, and counts in the other.",
        Scale(0, 35, 5),
        moments,
        lanes,
        words={"too late: dropped and counted": "too late for a window: counted as late"},
    )


def sliding() -> str:
    windows = tg.SlidingWindows.of_time_difference_and_grace("10 seconds", "5 seconds")
    records = [("A", 12), ("A", 16), ("A", 24), ("A", 19), ("A", 45)]
    moments, lanes = lanes_of(windows, records)
    return draw(
        "Sliding windows: records at most 10 seconds apart, 5 seconds of grace",
        "Each record has a window that ends with it, and one that begins after it if another record is in it.",
        Scale(0, 60, 5),
        moments,
        lanes,
    )


def session() -> str:
    windows = tg.SessionWindows.of_inactivity_gap_and_grace("5 seconds", "4 seconds")
    records = [("A", 2), ("A", 5), ("B", 6), ("A", 13), ("A", 9), ("A", 20), ("B", 23), ("A", 32)]
    moments, lanes = lanes_of(windows, records)
    return draw(
        "Sessions: a gap of 5 seconds, 4 seconds of grace",
        "Record 5 is at most the gap away from two sessions of A and makes them one.",
        Scale(0, 45, 5),
        moments,
        lanes,
    )


def unlimited() -> str:
    windows = tg.UnlimitedWindows.start_on(10_000)
    records = [("A", 14), ("B", 18), ("A", 5), ("A", 26), ("B", 30), ("A", 22)]
    moments, lanes = lanes_of_updates(windows, records)
    return draw(
        "Unlimited windows: from second 10 on",
        "One window per key that never closes: every update leaves, no result is ever final. Record 3 is in no window.",
        Scale(0, 40, 5),
        moments,
        lanes,
        ignored=[3],
        words={"an update leaves": "an update leaves, with the count so far"},
    )


def batch() -> str:
    windows = tg.BatchWindows.of_size("10 seconds")
    records = [("A", 3), ("B", 8), ("A", 14), ("A", 6), ("B", 17), ("B", 1), ("A", 31)]
    moments, lanes = lanes_of(windows, records)
    return draw(
        "Batch windows: 10 seconds of stream time",
        "Stream time, not the record, chooses the window: records 4 and 6 are late, and join the one that is current.",
        Scale(0, 45, 5),
        moments,
        lanes,
    )
