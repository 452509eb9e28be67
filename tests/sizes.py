"""Small sizes of the kernel (`kernel.tuning`), which a handful of records reaches."""

from __future__ import annotations

from tidegate.kernel.tuning import Tuning

SMALL = Tuning(
    slice_rows=3,
    close_rows=4,
    part_rows=2,
    compact_rows=5,
    whole_rows=1,
    whole_times=1,
    table_rows=2,
    key_windows=(2, 3),
    part_records=2,
    bucket_rows=3,
    page_logs=3,
    fanout=2,
    root_entries=2,
    bucket_segments=2,
    chunk_rows=2,
    piece_rows=2,
    fold_rows=1,
    divided_rows=1,
    joined_rows=2,
    pairs=2,
    open_stretches=2,
    batch_stretches=2,
    range_rows=3,
    read_whole_rows=5,
    merged_rows=3,
    copy_bytes=200,
    copy_seconds=0,
    copy_files=2,
    range_records=2,
    block_rows=3,
    gap_bytes=40,
    file_bytes=50,
    frame_rows=3,
    list_rows=2,
    part_bytes=700,
)
"""On Spark: `to_spark.to_df(table.node, tuning=SMALL)`."""
