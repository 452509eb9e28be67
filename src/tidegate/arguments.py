"""Questions about arguments that every layer asks. What a user gives may be anything.

A column of Spark has every attribute, and neither a hash nor a truth. `==` with a column or an array is no answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import index
from os import PathLike, fspath
from typing import Any

from tidegate.errors import DefinitionTypeError, in_one_line


def whole_number(value: Any) -> int | None:
    """The integer that `value` is, one of numpy too; None for anything else, and for a boolean."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def flag_of(given: Any, argument: str) -> bool:
    """The flag. Raises DefinitionTypeError for anything but True and False, also of numpy."""
    if type(given).__name__ not in ("bool", "bool_"):
        raise DefinitionTypeError(f"`{argument}` is {in_one_line(given)}. Use True or False.")
    return bool(given)


def is_one_of(value: Any, texts: Collection[str]) -> bool:
    """Whether `value` is one of these texts."""
    return isinstance(value, str) and value in texts


def has(value: Any, name: str) -> bool:
    """Whether `value` has an attribute of this name; False for a class and for a column of Spark."""
    return not isinstance(value, type) and hasattr(value, name) and not hasattr(value, "what nothing else has")


def options_of(given: Any, argument: str = "options") -> dict[str, Any]:
    """The options by name; none for None. Raises DefinitionTypeError unless they are a dict with texts as names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DefinitionTypeError(
            f"`{argument}` is {in_one_line(given)}, not a dict of options by their names. Give for example "
            f'{argument}={{"name": "value"}}, or leave it out.'
        )
    return dict(given)


def location_of(given: Any, argument: str) -> str:
    """The text of a path or an address. Raises DefinitionTypeError for anything else, and for an empty one."""
    text = fspath(given) if isinstance(given, str | PathLike) else None
    if not isinstance(text, str) or not text:
        raise DefinitionTypeError(
            f"`{argument}` is {in_one_line(given)}, not a path. Give the path or the address as text, for example "
            f'{argument}="/data/{argument}".'
        )
    return text
