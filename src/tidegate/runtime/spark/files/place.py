"""The order of records in files: one partition, and an offset made of the number of the file and of the row in it.

    27 bits: number of files before this one | 36 bits: number of rows before this one, in a text file of lines

The files of a source are one sequence: any other order of two files, such as a partition for each, would make results
depend on which files are in one batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.errors import InputError

PARTITION, OFFSET = "partition", "offset"
ROW_BITS = 36
MOST_FILES = 1 << 27

ORDER_FIELDS = (pa.field(PARTITION, pa.int64()), pa.field(OFFSET, pa.int64()))


def offset(number: int, row: int) -> int:
    """The offset of a record. Raises InputError if `number` or `row` does not fit into its bits."""
    if number >= MOST_FILES or row >= 1 << ROW_BITS:
        raise InputError(
            f"A stream of files has room for {MOST_FILES:,} files of {1 << ROW_BITS:,} rows, and this is row {row:,} "
            f"of file {number:,}. Begin with a new checkpoint and a new folder."
        )
    return (number << ROW_BITS) | row


def order(number: int, first_row: int, rows: int) -> dict[str, pa.Array]:
    """The columns `partition` and `offset` of rows that follow one another in a file."""
    start = offset(number, first_row + rows) - rows
    return {
        PARTITION: pa.repeat(pa.scalar(0, pa.int64()), rows),
        OFFSET: pa.array(np.arange(start, start + rows)),
    }
