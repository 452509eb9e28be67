"""Writes the golden files of the version that is checked out: `PYTHONPATH=src:tests python -m golden`."""

from __future__ import annotations

import sys

import tidegate
from golden.families import FOLDER, SIZES, families, written
from tidegate.kernel.tuning import DEFAULT


def main() -> int:
    folder = FOLDER / tidegate.__version__
    if folder.exists():
        print(f"{folder} is there: the files of a version are written once. Remove those that were never released.")
        return 1
    folder.mkdir()
    for name, table in families().items():
        (folder / f"{name}.json").write_text(written(table, SIZES.get(name, DEFAULT)))
    print(f"{folder}: {len(families())} files. Commit them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
