"""Arguments of commands that read a recorded stream: its files, key, times, and the order of its records."""

from __future__ import annotations

import argparse
from typing import Any

FILES = "a Parquet, CSV or JSON lines file, or a folder of them"


def add_columns(command: argparse.ArgumentParser) -> None:
    """Add the arguments for the columns of a record, and for the format of files."""
    command.add_argument("--key", required=True, metavar="COLUMNS", help="the key; several columns with commas")
    command.add_argument("--timestamp", required=True, metavar="COLUMN", help="event time: timestamp, ISO 8601 or ms")
    command.add_argument("--partition", metavar="COLUMN", help="with --offset: the order in which records came")
    command.add_argument("--offset", metavar="COLUMN", help="with --partition")
    command.add_argument(
        "--arrival", metavar="COLUMN", help="the arrival time of a record, such as Kafka's own timestamp"
    )
    command.add_argument(
        "--format", choices=["csv", "json", "parquet"], help="the format of the files (default: by their names)"
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of the table")


def columns(parsed: argparse.Namespace) -> dict[str, Any]:
    """The arguments about columns, as keyword arguments of `tg.advise` and its neighbours."""
    order = {name: getattr(parsed, name) for name in ("timestamp", "partition", "offset", "arrival")}
    return {"key": listed(parsed.key)} | order


def listed(text: str) -> list[str]:
    """The parts of a comma-separated text."""
    return [part.strip() for part in text.split(",") if part.strip()]
