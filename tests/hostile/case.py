"""Common parts of all cases: sources of records, a topology as code, a stream in batches, and settings of the run."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

import tidegate as tg
from hostile import functions
from sizes import SMALL
from tidegate.kernel.tuning import DEFAULT, Tuning

Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A step of a stream or of results: a class of functions and a column."""

    how: str
    what: str
    column: str
    types: tuple[tuple[str, str], ...] = ()
    name: str = ""

    @property
    def made(self) -> str:
        """The function, as code."""
        names = f", {[name for name, _ in self.types]!r}" if self.what in ("Doubled", "Cut", "Timed") else ""
        return f"f.{self.what}({self.column!r}{names})"

    @property
    def code(self) -> str:
        """The call, as code."""
        if self.how == "filter":
            return f".filter({self.made})"
        if self.how == "select_key":
            return f".select_key({self.made}, name={self.name!r})"
        types = ", ".join(f"{name!r}: {kind}" for name, kind in self.types)
        return f".map_values({self.made}, types={{{types}}})"


@dataclass(frozen=True)
class Source:
    """Records of one shape. `keys` and `columns`, the values, have their types as code.

    order    the columns with partition and offset
    deleted  the column that says which rows of a table are deleted
    """

    keys: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    timestamp: str
    order: tuple[str, str] | None
    steps: tuple[Step, ...] = ()
    deleted: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The key behind the steps."""
        chosen = [step.name for step in self.steps if step.how == "select_key"]
        return (chosen[-1],) if chosen else tuple(name for name, _ in self.keys)

    @property
    def aside(self) -> tuple[str, ...]:
        """The columns that are no values, behind the steps."""
        return (*self.key, self.timestamp, *(self.order or ()), *((self.deleted,) if self.deleted else ()))

    @property
    def values(self) -> tuple[str, ...]:
        """The value columns behind the steps."""
        names = [name for name, _ in (*self.keys, *self.columns)]
        return tuple(name for name in names if name not in self.aside)

    def schema(self, stamp: pa.DataType | None = None) -> pa.Schema:
        """The columns of a record; `stamp` is the type of its timestamp."""
        return eval(self.schema_code, {"pa": pa, "stamp": stamp or pa.int64()})

    @property
    def schema_code(self) -> str:
        """The schema, as code."""
        columns = [*self.keys, *self.columns, (self.timestamp, "stamp")]
        if self.order:
            columns += [(self.order[0], "pa.int32()"), (self.order[1], "pa.int64()")]
        if self.deleted:
            columns.append((self.deleted, "pa.bool_()"))
        return "pa.schema([" + ", ".join(f"({name!r}, {kind})" for name, kind in columns) + "])"

    @property
    def arguments(self) -> list[str]:
        """Arguments of `tg.stream` or `tg.table` for this source, as code."""
        said = [f"key={[name for name, _ in self.keys]!r}", f"timestamp={self.timestamp!r}"]
        if self.order:
            said += [f"partition={self.order[0]!r}", f"offset={self.order[1]!r}"]
        return said if self.deleted is None else [*said, f"deleted={self.deleted!r}"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A topology over one to three sources.

    batches   records of all partitions, in the order in which they are piped
    sides     number of the source of each record, per batch; empty if there is one source
    clocks    the wall clock at each batch (ms), if it matters
    restarts  numbers of the batches before which the query restarts
    splits    number of the map task that reads each record, per batch
    """

    seed: int
    batches: list[list[Row]]
    sides: list[list[int]]
    clocks: list[int]
    restarts: frozenset[int] = frozenset()
    drains: bool = False
    tasks: int = 1
    splits: list[list[int]]
    expects: tuple[Row, ...] | None = None
    idle: int | None = None

    @property
    def sizes(self) -> str:
        """Name of the choice of kernel sizes."""
        return Random(f"sizes {self.seed}").choice(["as ever", "small", "small", "mixed", "mixed"])

    @property
    def tuning(self) -> Tuning:
        """The sizes of the kernel: defaults, or all or some of them so small that a handful of records reaches them."""
        if self.sizes != "mixed":
            return SMALL if self.sizes == "small" else DEFAULT
        random = Random(f"mixed sizes {self.seed}")
        some = {one.name: getattr(SMALL, one.name) for one in fields(Tuning) if random.random() < 0.5}
        # Small enough that one window becomes large, small and large again, and that windows of a key become many.
        some |= {"whole_rows": random.randint(1, 2), "whole_times": random.choice([1, 1, 4])}
        return replace(DEFAULT, **some)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of records."""
        raise NotImplementedError

    @property
    def key(self) -> tuple[str, ...]:
        """The key of a result."""
        return self.sources[0].key

    @property
    def clocked(self) -> bool:
        """Whether the wall clock matters."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether rows of one key and batch have an order."""
        return True

    @property
    def kinds(self) -> list[str]:
        """Labels that describe the case, for the counts of a run."""
        raise NotImplementedError

    @property
    def roomier(self) -> Any:
        """The same case with buffers that are never full."""
        return self

    def code(self, unbound: bool = True) -> str:
        """The topology as Python that defines `table`; `sources` are DataFrames, or names if it is unbound."""
        raise NotImplementedError

    def table(self, *frames: Any, module: Any = tg) -> Any:
        """The topology of tidegate, whose names are taken from `module`."""
        space: dict[str, Any] = {"tg": module, "pa": pa, "f": functions, "stamp": pa.int64()}
        space |= {"nan": math.nan, "inf": math.inf, "Decimal": Decimal, "datetime": dt}
        space["sources"] = frames or self.names
        exec(self.code(not frames), space)
        return space["table"]

    def functions(self, what: str) -> Any:
        """New function objects, made from this code and not shared."""
        return eval(what, {"f": functions, "pa": pa})

    @property
    def names(self) -> list[str]:
        """The names of the inputs, by source."""
        suffixes = ("", "r", "t")
        return [f"case{self.seed}{suffix}" for suffix, _ in zip(suffixes, self.sources, strict=False)]

    def side_of(self, number: int, place: int) -> int:
        """The source of a record."""
        return self.sides[number][place] if self.sides else 0

    def without(self, dropped: set[tuple[int, int]]) -> Any:
        """The same case without the records at these (batch, place)."""

        def left(lists: list[list[Any]]) -> list[list[Any]]:
            return [[one for i, one in enumerate(ones) if (n, i) not in dropped] for n, ones in enumerate(lists)]

        return replace(self, batches=left(self.batches), splits=left(self.splits), sides=left(self.sides))

    def by_source(self) -> Any:
        """The same in batches of one source each, as the driver takes them."""
        if not self.sides:
            return self
        cuts = []
        for number, sides in enumerate(self.sides):
            starts = [i for i, side in enumerate(sides) if i == 0 or sides[i - 1] != side]
            cuts += [(number, slice(*ends)) for ends in zip(starts, [*starts[1:], len(sides)], strict=False)]
            cuts += [(number, slice(0, 0))] * (not sides)
        begins = {number: place for place, (number, _) in reversed(list(enumerate(cuts)))}
        return replace(
            self,
            batches=[self.batches[n][part] for n, part in cuts],
            sides=[self.sides[n][part] for n, part in cuts],
            splits=[self.splits[n][part] for n, part in cuts],
            clocks=[self.clocks[n] for n, _ in cuts],
            restarts=frozenset(begins[n] for n in self.restarts),
        )
