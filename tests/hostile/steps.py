"""The steps of a stream, record by record; functions get copies of everything, as if it had been serialized."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hostile.case import Case, Row, Source, Step
from hostile.stored import Misfit, stored


class Stopped(Exception):  # noqa: N818 - what happens to a query
    """A batch that must fail: `error` names the error of tidegate."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@dataclass
class Steps:
    """The steps of a source, with functions of their own."""

    source: Source
    steps: list[tuple[Step, Callable[..., Any], dict[str, Any]]]

    @classmethod
    def of(cls, what: Case, source: Source) -> Steps:
        """The steps of a source of a case."""
        return cls(
            source,
            [
                (step, what.functions(step.made), {name: what.functions(kind) for name, kind in step.types})
                for step in source.steps
            ],
        )

    def run(self, record: Row) -> Row | None:
        """The record behind the steps; None if a filter takes it out. Raises Misfit or functions.Failed."""
        record = dict(record)
        for step, function, types in self.steps:
            found = function(deepcopy(record))
            if step.how == "filter":
                if not found:
                    return None
            elif step.how == "select_key":
                record = {name: value for name, value in record.items() if name != step.name}
                record[step.name] = _text(found)
            else:
                source = self.source
                kept = {*(name for name, _ in source.keys), source.timestamp, *(source.order or ())}
                record = {name: value for name, value in record.items() if name in kept}
                record |= {name: stored(found.get(name), kind) for name, kind in types.items()}
        return record


@dataclass
class TableStep:
    """A step of a table, with a function of its own: a filtered row becomes a tombstone."""

    step: Step
    function: Callable[..., Any]
    types: dict[str, Any]
    key: tuple[str, ...]

    @classmethod
    def of(cls, what: Case, step: Step, key: tuple[str, ...]) -> TableStep:
        """The step of a case."""
        return cls(step, what.functions(step.made), {name: what.functions(kind) for name, kind in step.types}, key)

    def run(self, row: Row) -> Row:
        """The row behind the step."""
        aside = {name: row[name] for name in (*self.key, "window", "timestamp", "deleted") if name in row}
        values = [name for name in row if name not in aside]
        if self.step.how == "filter":
            lives = not row.get("deleted") and bool(self.function(deepcopy(row)))
            return (row if lives else row | dict.fromkeys(values)) | {"deleted": not lives}
        if row.get("deleted"):
            return aside | dict.fromkeys(self.types)
        found = self.function(deepcopy(row))
        return aside | {name: stored(found.get(name), kind) for name, kind in self.types.items()}


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Misfit(f"{value!r} is no text")
    return value
