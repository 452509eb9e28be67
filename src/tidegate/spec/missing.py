"""Designed names that do not exist yet: using one raises an error with its substitute (docs/notyet.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

from tidegate.errors import DefinitionError, DefinitionTypeError

F = TypeVar("F", bound=Callable[..., Any])


class MissingNameError(DefinitionError, AttributeError):
    """A name that does not exist yet; also an AttributeError, so that `hasattr` returns False."""


def refuse(owner: str, name: str, until_then: Mapping[str, str]) -> NoReturn:
    """Raise for a missing attribute: MissingNameError if `until_then` has a substitute, else AttributeError."""
    if name in until_then:
        raise MissingNameError(f"{owner} has no {name!r} yet (docs/notyet.md). Until then: {until_then[name]}.")
    raise AttributeError(f"{owner} has no attribute {name!r}")


def without(**until_then: str) -> Callable[[F], F]:
    """Decorator: an argument that the function does not have yet raises DefinitionTypeError with its substitute."""

    def decorated(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name in until_then:
                    raise DefinitionTypeError(
                        f"`{name}`: {function.__name__} does not take it yet (docs/notyet.md). Until then: "
                        f"{until_then[name]}."
                    )
            return function(*args, **given)

        return cast("F", checked)

    return decorated
