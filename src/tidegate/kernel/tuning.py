"""Sizes at which the kernel changes its way of working, as one value that callers pass in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Sizes that change time and memory but no row. Tests make them small, so that a few records reach them.

    `kernel.rows.layout.Layout.tuning` has the sizes for a batch, `kernel.state.store.Store.tuning` the sizes for stored
    data. Both get the same value.

    Map step
        slice_rows    rows packed at a time: bounds the memory of a map task, however much it reads
        offset_runs   if a partition has more runs of consecutive offsets than this in a map task, its rows are one
                      scattered chunk

    Final results of time windows
        close_rows      rows of closing windows that are merged at once; a larger window is split into parts by key
        part_rows       rows of such a window that are merged at a time, about
        compact_rows    a log shorter than this is never compacted
        compact_growth  a log is compacted when it has this many times the rows it had when it was last compacted
        most_tables     tables that a record of hopping windows is in at most, about; more windows share tables. A
                        checkpoint must be read with the number that wrote it

    Tables of windows
        whole_rows   a window of up to this many rows is read and written whole by each batch that touches it
        whole_times  so is a larger window of up to this many times the rows that the batch has in it; in other windows
                     the batch reads and writes only the rows of its keys. Both numbers also decide when sliding windows
                     and sessions are stored by key: when a batch writes more than `whole_rows` windows, and more than
                     `whole_times` times the windows that it needs

    Tables without windows
        table_rows   rows of a batch that are applied together, about, or all those of one range

    Sliding windows and sessions
        key_windows    a bucket with more windows than this is split, because a record reads and writes the whole bucket
                       of its key. The second number is for batches with many records per bucket: fewer large buckets
                       are faster for them
        lookup_records records that are looked up between two checks whether all buckets are touched already
        part_records   records of sliding windows with final results that are applied together, or all those of one
                       bucket. Each makes up to two windows, and takes about a kilobyte while it is applied

    State by key, and its index
        bucket_rows   a bucket with more rows than this is split
        page_logs     a page of the index with more logs than this is split
        fanout        a page with more child pages than this is split
        root_entries  logs, or pages of the highest level, that the meta frame holds at most

    Time limits
        buckets_per_level  time buckets of a limit, about: with more of them an update writes more, with fewer a due
                           bucket reads more. A bucket that begins to be due is cut into as many again, so that it is
                           read whole only once. A checkpoint must be read with the number that wrote it
        bucket_segments    a time bucket with more segments than this is compacted, each bucket after a different number
                           of batches; of the log of a pane, and of retained results, so many segments become one
        chunk_rows, piece_rows
                           keys in a chunk of the key index; keys that are looked up at a time
        fold_rows          the log of the key index is merged into its base when it has more rows than this and than an
                           eighth of the base

    Joins
        divided_rows    records of a side for each task, from which a blob has them in ranges of hashes
        joined_rows     records that a join of two streams packs at a time, and then takes at a time, about
        pairs           pairs of records that are found at a time
        open_stretches  stretches that span the time for which a record is open
        batch_stretches  stretches in which the open records of a small batch are at most; a large batch may have more
        merged_rows     runs of open records that together have more rows than this are not merged
        range_rows      a range of a table with more rows than this is split: a small batch adds a run to each range
        read_whole_rows a table is read and written whole only if its rows and the keys of the batch are together up to
                        this many: more would take too much memory
        copy_bytes      bytes of all copies of runs in a process; of more runs only the files stay, if they have files
        copy_seconds    a copy that no step used for so long makes room for others: a minute, after which Spark ends
                        workers that have nothing to do
        copy_files      copies in files: each takes a descriptor
        range_records   records of a copy with hashes of one range, about
        block_rows      records that are merged, written to a copy or closed at a time, about
        gap_bytes       a gap of fewer unwanted bytes than this in a copy is read too: another read costs more
        file_bytes      a copy of up to this many bytes stays in memory: a file takes a descriptor

    Spark
        frame_rows  rows to a frame: enough to drown the cost per frame, few enough that a frame of wide rows fits in
                    memory twice
        list_rows   rows to a list; Spark holds a list whole
        part_bytes  the most bytes of one value in Spark's state: a worker holds about ten copies of it while it is
                    handed over; a value of 256 MB ends Spark's state server with an OutOfMemoryError
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
    table_rows: int = 131_072
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
    divided_rows: int = 16_384
    joined_rows: int = 131_072
    pairs: int = 150_000
    open_stretches: int = 4
    batch_stretches: int = 16
    merged_rows: int = 1_000_000
    range_rows: int = 1_000_000
    read_whole_rows: int = 900_000
    copy_bytes: int = 64 << 20
    copy_seconds: int = 60
    copy_files: int = 500
    range_records: int = 16
    block_rows: int = 65_536
    gap_bytes: int = 2_048
    file_bytes: int = 1 << 18
    frame_rows: int = 100_000
    list_rows: int = 1_000
    part_bytes: int = 1 << 20


DEFAULT = Tuning()
