"""Names that cannot be used: designed ones that do not exist yet (docs/notyet.md), those of another step, and those
that need pyspark.

Using one raises an error with its substitute, with the step that has it, or with the command that installs pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from tidegate.errors import DefinitionError, DefinitionTypeError, TidegateError

F = TypeVar("F", bound=Callable[..., Any])


class MissingNameError(DefinitionError, AttributeError):
    """A name that does not exist yet, not here, or not without pyspark; also an AttributeError: `hasattr` is False."""


def refuse(owner: str, name: str, until_then: Mapping[str, str]) -> NoReturn:
    """Raise for a missing attribute: MissingNameError if `until_then` has a substitute, else AttributeError."""
    if name in until_then:
        raise MissingNameError(f"{owner} has no {name!r} yet (docs/notyet.md). Until then: {until_then[name]}.")
    raise AttributeError(f"{owner} has no attribute {name!r}")


class Placed:
    """Base of values whose calls follow each other: a name that another value has is refused with the way there."""

    _ways: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker would find any name otherwise

        def __getattr__(self, name: str) -> NoReturn:
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            if (way := self._ways.get(name)) is not None:
                raise MissingNameError(f"{said}. {way}.")
            raise AttributeError(said, name=name, obj=self)


def has_pyspark() -> bool:
    """Whether pyspark is installed."""
    return find_spec("pyspark") is not None


def require_pyspark(what: str, error: type[TidegateError] = TidegateError) -> None:
    """Raise `error` if pyspark, which `what` needs, is not installed."""
    if not has_pyspark():
        raise error(f"{what} needs pyspark. Run: pip install 'tidegate[spark]'")


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
