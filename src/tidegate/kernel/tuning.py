"""The sizes from which on the kernel does something else, as one value that is handed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Sizes that decide time and memory, but no row: tests make them small, so that a handful of records reaches them.

    A layout (`kernel.rows.layout.Layout.tuning`) has those of a batch, a store (`kernel.state.store.Store.tuning`)
    those of what is stored. Both are handed the same value.

    Map step
        slice_rows    rows packed at a time: bounds the memory of a map task, whatever it is given to read
        offset_runs   with more runs of consecutive offsets than this, a partition's part in a map task is one scattered
                      chunk

    Final results of time windows
        close_rows      rows of closing windows that are merged at once; a larger window is dealt into parts by key
        part_rows       about how many rows of such a window are merged at a time
        compact_rows    a log shorter than this is never compacted
        compact_growth  a log is compacted when it has this many times the rows it had when it was last compacted
        most_tables     in about so many tables a record of hopping windows is at most; more windows share tables. A
                        checkpoint is read with the number that it was written with

    Tables of windows
        whole_rows   a window up to so many rows is read and written whole by each batch that touches it
        whole_times  so is a larger one of up to so many times the rows that a batch has of it; otherwise the batch
                     reads and writes the rows of its keys. The same two numbers decide when sliding windows and
                     sessions are stored by key: when a batch writes more than so many, and so many times those that it
                     needs

    Sliding windows and sessions
        key_windows    a bucket with more windows than this becomes several: one record reads and writes the bucket of
                       its key. The second number is for batches with many records for each bucket, which read and write
                       fewer large ones faster
        lookup_records so many records are looked at before it is asked whether all buckets are touched already
        part_records   so many records of final results of sliding windows are applied together, or those of one bucket.
                       Each makes up to two windows, and takes about a kilobyte while it is applied

    State by key, and its index
        bucket_rows   a bucket with more rows than this becomes several
        page_logs     a page of the index with more logs than this becomes several
        fanout        a page with more pages below it than this becomes several
        root_entries  the meta frame holds up to so many logs, or pages of the highest level

    Time limits
        buckets_per_level  into about so many time buckets a limit is cut: more of them make an update write more, fewer
                           a due one read more. One that begins to be due is cut into as many again, so that it is read
                           whole only once. A checkpoint is read with the number that it was written with
        bucket_segments    a time bucket of more segments than this is put together, each after a different number of
                           batches
        chunk_rows, piece_rows
                           keys in a chunk of the key index, and those that are looked up at a time
        fold_rows          the log of the key index is put together with its base when it has more rows than this and an
                           eighth of the base

    Joins
        pairs           so many pairs of records are found at a time
        open_stretches  so many stretches span the time for which a record is open
        merged_rows     runs of open records that together have more rows than this are not merged
        range_rows      a range of a table with more rows than this is cut into several
        copy_bytes      bytes of the process for all copies of runs that it has; a larger state is decoded as far as it
                        has no copy
        copy_steps      copies that so many steps have not asked for make room for others
        range_records   about so many records of a copy have hashes of one range
        block_rows      about so many records are merged, written to a copy or closed at a time
        gap_bytes       bytes of a copy that nobody wants are read too where they are fewer than this: another read
                        costs more
        file_bytes      a copy up to so many bytes stays in memory: a file takes a descriptor

    Spark
        frame_rows  rows to a frame: enough to drown the cost per frame, few enough that a frame of wide rows fits in
                    memory twice
        list_rows   rows to a list; Spark holds a list whole
        part_bytes  the most bytes of one value in Spark's state: a worker has it some ten times over while it is handed
                    over; one of 256 MB ends Spark's state server with an OutOfMemoryError
    """

    slice_rows: int = 500_000
    offset_runs: int = 32
    close_rows: int = 1_500_000
    part_rows: int = 500_000
    compact_rows: int = 4_000_000
    compact_growth: int = 4
    most_tables: int = 16
    whole_rows: int = 10_000
    whole_times: int = 12
    key_windows: tuple[int, int] = (500, 6_000)
    lookup_records: int = 10_000
    part_records: int = 50_000
    bucket_rows: int = 20_000
    page_logs: int = 128
    fanout: int = 64
    root_entries: int = 32
    buckets_per_level: int = 64
    bucket_segments: int = 64
    chunk_rows: int = 200_000
    piece_rows: int = 50_000
    fold_rows: int = 200_000
    pairs: int = 150_000
    open_stretches: int = 4
    merged_rows: int = 1_000_000
    range_rows: int = 500_000
    copy_bytes: int = 64 << 20
    copy_steps: int = 256
    range_records: int = 16
    block_rows: int = 65_536
    gap_bytes: int = 2_048
    file_bytes: int = 1 << 18
    frame_rows: int = 100_000
    list_rows: int = 1_000
    part_bytes: int = 1 << 20


DEFAULT = Tuning()
