"""The public names, and the sections of their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import tidegate as tg
from tidegate import testing
from tidegate.advice.advice import Advice
from tidegate.advice.partners import JoinAdvice
from tidegate.kernel.inspect.graces import Graces
from tidegate.spec.suppressed import UntilTimeLimit, UntilWindowCloses

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Examples")
_FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)
_LANES = {"tg.kafka": "kafka", "tg.debezium": "kafka", "tg.sinks": "sinks"}
_DSL = "tidegate.dsl."
"""Fields of these classes are the plan, and not documented."""


@dataclass(frozen=True)
class Name:
    """A public function, class, method or property."""

    dotted: str
    value: Any

    @property
    def function(self) -> Any:
        return self.value.fget if isinstance(self.value, property) else self.value

    @property
    def docstring(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def sections(self) -> dict[str, str]:
        """The text of each section."""
        parts = re.split(r"^(\w+):$", self.docstring, flags=re.MULTILINE)
        return {name: text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name in SECTIONS}

    @property
    def for_spark(self) -> list[str]:
        """The blocks of `Examples` that need Spark: the others are lines behind `>>>`."""
        return _FENCED.findall(inspect.cleandoc(self.sections.get("Examples", "")))

    @property
    def lane(self) -> str:
        """The lane of `docs/lanes.py` that runs these blocks."""
        return _LANES.get(".".join(self.dotted.split(".")[:2]), "spark")

    @property
    def place(self) -> str:
        """Module and qualified name of the definition: the name in the reference."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.value)

    def parameters(self) -> list[str]:
        """The parameters that `Args` must have."""
        if isinstance(self.value, property):
            return []
        if self.is_class:
            if is_dataclass(self.value) or "__init__" not in vars(self.value):
                return []
            return _named(self.value.__init__)
        return _named(self.value)

    def attributes(self) -> list[str]:
        """The fields that `Attributes` must have."""
        if not self.is_class or not is_dataclass(self.value) or self.value.__module__.startswith(_DSL):
            return [*getattr(self.value, "_fields", ())]
        return [each.name for each in fields(self.value) if not each.name.startswith("_") and each.name != "node"]

    def returns(self) -> bool:
        """Whether it returns a value, so that a `Returns` section is needed."""
        if self.is_class or isinstance(self.value, property):
            return False
        return self.value.__annotations__.get("return") not in (None, "None", "NoReturn")

    def raises(self) -> set[str]:
        """The errors that its own lines raise."""
        if self.is_class:
            return set()
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
        names = [each.func if isinstance(each, ast.Call) else each for each in raised]
        return {name.id for name in names if isinstance(name, ast.Name) and name.id[0].isupper()}


def _named(function: Any) -> list[str]:
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    given = list(inspect.signature(function).parameters.values())
    return [kinds.get(each.kind, "") + each.name for each in given if each.name not in ("self", "cls")]


def names() -> list[Name]:
    """Every public name, each once: those of `tidegate`, its submodules and `tidegate.testing`, with their methods."""
    found: dict[int, Name] = {}
    for dotted, value in _top():
        for name in (Name(dotted, value), *(_members(dotted, value) if inspect.isclass(value) else ())):
            found.setdefault(id(name.function), name)
    return list(found.values())


def _top() -> Iterator[tuple[str, Any]]:
    for name in dir(tg):
        value = getattr(tg, name)
        if inspect.ismodule(value):
            public = getattr(value, "__all__", [each for each in vars(value) if _own(value, each)])
            yield from ((f"tg.{name}.{each}", getattr(value, each)) for each in public)
        elif not name.startswith("_"):
            yield f"tg.{name}", value
    yield from ((f"tidegate.testing.{name}", getattr(testing, name)) for name in testing.__all__)
    for kind in (Advice, JoinAdvice, Graces, UntilWindowCloses, UntilTimeLimit):
        yield f"{kind.__module__}.{kind.__name__}", kind


def _own(module: Any, name: str) -> bool:
    value = vars(module)[name]
    return not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__


def _members(dotted: str, kind: type) -> Iterator[Name]:
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        ours = (getattr(getattr(value, "fget", value), "__module__", None) or "").startswith("tidegate")
        callable_ = inspect.isfunction(value) or isinstance(value, property)
        # Methods of Spark's listener are called by Spark.
        if not name.startswith(("_", "onQuery")) and callable_ and ours:
            yield Name(f"{dotted}.{name}", value)


def in_lane(lane: str) -> list[Name]:
    """The public names whose examples a lane runs."""
    return [name for name in names() if name.for_spark and name.lane == lane]
