"""Joined: the kinds of joins with their settings, and the value columns of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tidegate.arguments import is_one_of
from tidegate.errors import DefinitionError, DefinitionTypeError, in_one_line
from tidegate.instants import show_ms
from tidegate.spec.columns import check_user_name
from tidegate.spec.steps import MapValues, declared_types, is_expression, no_such_fields, refusal_of, takes_key, text_of
from tidegate.spec.windows import LEFT, RIGHT, JoinWindows

INNER, LEFT_JOIN, OUTER = HOWS = ("inner", "left", "outer")
SIDES = ("left", "right")
"""The names of the sides LEFT and RIGHT."""


def stores_of_sides(name: str) -> tuple[str, ...]:
    """The names of the stores of a join's sides; `name`: the name of the join."""
    return tuple(f"{name}-{side}" for side in SIDES)


@dataclass(frozen=True)
class JoinValues(MapValues):
    """A value joiner, as a step over rows with the struct columns `left` and `right`; a missing side is null."""

    @property
    def expressions(self) -> bool:
        """Whether any column is an expression."""
        return not callable(self.mapper) and any(is_expression(how) for _, how in self.mapper)

    def check_reads(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Raise DefinitionError if an expression names a value column that its side does not have."""
        import pyarrow as pa

        values = dict(zip(SIDES, (left, right), strict=True))
        fields = [(side, pa.struct([(name, pa.null()) for name in names])) for side, names in values.items()]
        schema = pa.schema([*((name, pa.null()) for name in self.key), *fields])
        for how in () if callable(self.mapper) else (how for _, how in self.mapper if is_expression(how)):
            if (error := refusal_of(how, schema)) is None:
                continue
            side, name = [*no_such_fields(error), "", ""][:2]
            if side in values and name and name not in values[side]:
                raise DefinitionError(
                    f"{self} reads the column {name!r} of the {side} side, which does not have it. Its value columns "
                    f"are {', '.join(values[side]) or 'none'}."
                )

    def __str__(self) -> str:
        return super().__str__().replace("map_values", "value_joiner", 1)


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The settings of a join of two inputs.

    how       "inner": only pairs; "left": also left records without a partner; "outer": also records of either side
    suffixes  added to the names of columns that both sides have; None if no such columns are allowed
    self_join whether both sides are one stream: each record arrives as left and then as right
    tables    which sides are tables: their records are changes, and a null value is a value
    """

    how: str
    suffixes: tuple[str, str] | None = None
    values: JoinValues | None = None
    self_join: bool = False
    tables: ClassVar[tuple[bool, bool]] = (False, False)

    def preserves(self, side: int) -> bool:
        """Whether records of this side also leave without a partner, joined with nulls."""
        return self.how == OUTER or (self.how == LEFT_JOIN and side == LEFT)

    def identifies(self, side: int) -> bool:
        """Whether the id of a row contains the id of its record of this side."""
        return True

    @property
    def needs_time_progress(self) -> bool:
        """Whether every task needs the progress of each input's time within a batch."""
        return False

    @property
    def waits(self) -> bool:
        """Whether records wait for late changes of a table."""
        return False

    @property
    def grace_ms(self) -> int:
        """How long the join waits for late records (ms)."""
        return 0

    @property
    def identity(self) -> dict[str, str]:
        """Settings besides `how` that must equal the checkpoint's, by the names of `plan.identity`."""
        raise NotImplementedError

    @property
    def shown(self) -> dict[str, str]:
        """Settings besides `how` that `describe()` shows, by name."""
        suffixes = {} if self.suffixes is None else {"suffixes": " and ".join(map(repr, self.suffixes))}
        return suffixes if self.values is None else suffixes | {"values": str(self.values)}

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that only this kind of join has, as JSON values; `of_settings` reads them."""
        return {}

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], **others: Any) -> Joined:
        """A join of this kind from its `settings` and the fields of every join (`others`)."""
        return cls(**settings, **others)

    def names(self, left: Sequence[str], right: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The names of both sides' value columns in a row: by name in the input, left and right.

        Raises DefinitionError for a name that would mean two columns.
        """
        both = [name for name in left if name in set(right)]
        if both and self.suffixes is None:
            raise DefinitionError(
                f'join: both sides have a column {both[0]!r}. Give suffixes=("_left", "_right"), a value_joiner, '
                "or rename it with map_values."
            )
        suffixes = self.suffixes or ("", "")
        named = [
            {name: name + suffixes[side] if name in both else name for name in names}
            for side, names in ((LEFT, left), (RIGHT, right))
        ]
        taken = [*named[LEFT].values(), *named[RIGHT].values()]
        for name in taken:
            if taken.count(name) > 1:
                raise DefinitionError(
                    f"join: two columns of a row would be called {name!r} with suffixes={self.suffixes!r}. "
                    "Choose other suffixes, or rename one with map_values."
                )
        return named[LEFT], named[RIGHT]


@dataclass(frozen=True, kw_only=True)
class StreamStream(Joined):
    """Two streams whose records join within windows (SEMANTICS 7b)."""

    windows: JoinWindows

    @property
    def grace_ms(self) -> int:
        return self.windows.grace_ms

    @property
    def identity(self) -> dict[str, str]:
        return {"windows": str(self.windows), "grace": show_ms(self.grace_ms)}

    @property
    def shown(self) -> dict[str, str]:
        return self.identity | super().shown

    @property
    def settings(self) -> dict[str, Any]:
        return {"windows": asdict(self.windows)}

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], **others: Any) -> Joined:
        return super().of_settings(dict(settings, windows=JoinWindows(**settings["windows"])), **others)

    def __str__(self) -> str:
        return f"{self.how} join in {self.windows}"


@dataclass(frozen=True, kw_only=True)
class StreamTable(Joined):
    """A stream whose records look up rows of a table (SEMANTICS 16).

    history_ms  a record joins the row as of its timestamp; versions are kept for this long. None: the latest row
    grace_ms    how long a record waits for late changes of the table
    """

    history_ms: int | None = None
    grace_ms: int = 0
    tables: ClassVar[tuple[bool, bool]] = (False, True)

    def identifies(self, side: int) -> bool:
        return side == LEFT

    @property
    def needs_time_progress(self) -> bool:
        return self.history_ms is not None or self.grace_ms > 0

    @property
    def waits(self) -> bool:
        return self.grace_ms > 0

    @property
    def identity(self) -> dict[str, str]:
        history = "latest row" if self.history_ms is None else f"versions of {show_ms(self.history_ms)}"
        return {"table": history, "grace": show_ms(self.grace_ms)}

    @property
    def shown(self) -> dict[str, str]:
        row = "the latest one" if self.history_ms is None else f"as of the record, {show_ms(self.history_ms)} back"
        return {"row": row, "grace": show_ms(self.grace_ms)} | super().shown

    @property
    def settings(self) -> dict[str, Any]:
        return {"history_ms": self.history_ms, "grace_ms": self.grace_ms}

    def __str__(self) -> str:
        back = "" if self.history_ms is None else show_ms(self.history_ms)
        of = f"the row as of the record, {back} back" if back else "the latest row"
        waits = f", after a grace of {show_ms(self.grace_ms)}" if self.grace_ms else ""
        return f"{self.how} join with {of}{waits}"


@dataclass(frozen=True, kw_only=True)
class TableTable(Joined):
    """Two tables: each change of a table joins the current row of the other one (SEMANTICS 17).

    caching    whether only the last row per key and micro-batch leaves
    histories  how long the table of each side keeps versions (ms). A change is dropped if it is older than the newest
               version of its key, or than the history. None: the change that arrives last is the row
    """

    caching: bool = True
    histories: tuple[int | None, int | None] = (None, None)
    tables: ClassVar[tuple[bool, bool]] = (True, True)

    @property
    def needs_time_progress(self) -> bool:
        return any(history is not None for history in self.histories)

    @property
    def identity(self) -> dict[str, str]:
        return {"table": "two tables"} | {f"{side} table": versions for side, versions in self._versions.items()}

    @property
    def shown(self) -> dict[str, str]:
        return self._versions | super().shown | ({} if self.caching else {"emits": "every update"})

    @property
    def _versions(self) -> dict[str, str]:
        """How long the table of a side keeps versions, by the name of the side; without tables that keep none."""
        sides = zip(SIDES, self.histories, strict=True)
        return {side: f"versions of {show_ms(history)}" for side, history in sides if history is not None}

    @property
    def settings(self) -> dict[str, Any]:
        return {"histories": list(self.histories)}

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], **others: Any) -> Joined:
        return super().of_settings(dict(settings, histories=tuple(settings["histories"])), **others)

    def __str__(self) -> str:
        return f"{self.how} join of tables"


JOINS: tuple[type[Joined], ...] = (StreamStream, StreamTable, TableTable)
"""Every kind of join."""


def checked_how(how: Any) -> str:
    """`how`. Raises DefinitionError unless it is in HOWS."""
    if not is_one_of(how, HOWS):
        hint = " A right join is the left join of the other stream." if is_one_of(how, ("right",)) else ""
        raise DefinitionError(f'`how` is {in_one_line(how)}. Use "inner", "left" or "outer".{hint}')
    return str(how)


def checked_suffixes(suffixes: Any) -> tuple[str, str] | None:
    """The pair of suffixes, or None. Raises DefinitionTypeError unless they are two texts, DefinitionError if equal."""
    if suffixes is None:
        return None
    pair = tuple(suffixes) if isinstance(suffixes, list | tuple) else ()
    if len(pair) != 2 or not all(isinstance(one, str) for one in pair):
        raise DefinitionTypeError(f'`suffixes` is {suffixes!r}. Use a pair of texts, such as ("_left", "_right").')
    if pair[0] == pair[1]:
        raise DefinitionError(f"`suffixes` is {suffixes!r}: the two must differ.")
    return pair[0], pair[1]


def join_values_of(
    joiner: Any, types: Mapping[str, Any] | None, key: tuple[str, ...], kept: tuple[str, ...]
) -> JoinValues | None:
    """The step. Raises DefinitionTypeError for a wrong value joiner, DefinitionError for a column it cannot set."""
    given = declared_types(types)
    if joiner is None:
        if given:
            raise DefinitionError("`types` are of what a `value_joiner` gives, and there is none. Leave them out.")
        return None
    mapper = _mapper_of(joiner)
    for name in key:
        if name in SIDES:
            raise DefinitionError(
                f"The key column {name!r} has the name that a `value_joiner` gives to a side. Rename it."
            )
    for name in [*([] if callable(mapper) else (name for name, _ in mapper)), *(name for name, _ in given)]:
        check_user_name(name, "A column that `value_joiner` gives")
        if name in kept:
            raise DefinitionError(
                f"`value_joiner` sets the column {name!r}, which is no value: the key and the time of a row stay as "
                "they are. Use another name."
            )
    return JoinValues(mapper, key, kept, given)


def _mapper_of(joiner: Any) -> Any:
    """A value joiner as a mapper of `MapValues`."""
    if isinstance(joiner, Mapping):
        for name, how in joiner.items():
            if not (callable(how) or is_expression(how)):
                raise DefinitionTypeError(
                    f"`value_joiner` gives the column {name!r} as {how!r}. Use a function of (left, right), or an "
                    'expression such as pc.field("left", "price") * pc.field("right", "pieces").'
                )
        return tuple((name, how if is_expression(how) else _of_sides(how)) for name, how in joiner.items())
    if callable(joiner):
        return _of_sides(joiner)
    raise DefinitionTypeError(
        f"`value_joiner` is {joiner!r}. Use a function that takes the values of both sides and returns a dict of "
        "value columns, or a dict of them, each as a function or an expression."
    )


@dataclass(frozen=True)
class _OfSides:
    """A function of (left, right) as a function of the row that has both."""

    function: Callable[..., Any]

    def __call__(self, row: dict[str, Any]) -> Any:
        return self.function(row["left"], row["right"])

    def __str__(self) -> str:
        return text_of(self.function)


@dataclass(frozen=True)
class _OfKeyAndSides:
    """A function of (key, left, right) as a function of the key and the row that has both."""

    function: Callable[..., Any]

    def __call__(self, key: Any, row: dict[str, Any]) -> Any:
        return self.function(key, row["left"], row["right"])

    def __str__(self) -> str:
        return text_of(self.function)


def _of_sides(function: Callable[..., Any]) -> Callable[..., Any]:
    return _OfKeyAndSides(function) if takes_key(function, others=2) else _OfSides(function)
