"""What a user may give as an argument: anything. A call takes it, or says in an error of tidegate what to give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import tidegate as tg


class Column:
    """A stand-in for a column of PySpark: it has every attribute, `==` makes another column, and none is true."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return Column()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Column()

    def __bool__(self) -> bool:
        raise ValueError("Cannot convert column into bool")

    def __iter__(self) -> Any:
        raise TypeError("Column is not iterable")

    def __repr__(self) -> str:
        return "Column<'city'>"


def anything() -> dict[str, Any]:
    """Values of many kinds, by a name for each."""
    given = [None, True, 3, 2.5, math.nan, np.int64(5), np.timedelta64(5, "s"), b"x", "", "x", "9" * 5_000 + " s"]
    given += [date(2026, 1, 1), timedelta.max, [], ["x"], [["x"]], (), {}, {1: 2}, {"x"}, object(), int, Path("x")]
    given += [Column(), [Column()], np.array(["x", "y"]), pd.NA, pd.NaT, pd.DataFrame({"x": [1]}), pa.table({"x": [1]})]
    given += [pa.Table]
    return {f"{number} ({type(value).__name__})": value for number, value in enumerate(given)}


def errors_of(call: Callable[..., Any], valid: Mapping[str, Any]) -> set[str]:
    """The names of tidegate's errors that the call gives for anything; each argument of `valid` is replaced."""
    found = set()
    for argument in valid:
        for value in anything().values():
            try:
                call(**{**valid, argument: value})
            except tg.TidegateError as error:
                found.add(type(error).__name__)
    return found


def bare_errors(
    call: Callable[..., Any], valid: Mapping[str, Any], values: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The errors that are not tidegate's, by the argument and what it was; each argument of `valid` is replaced."""
    call(**valid)
    found = {}
    for argument in valid:
        for name, value in (values or anything()).items():
            try:
                call(**{**valid, argument: value})
            except tg.TidegateError:
                pass
            except Exception as error:
                found[f"{argument}={name}"] = f"{type(error).__name__}: {error}"[:200]
    return found
