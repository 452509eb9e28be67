"""The reference: every public name has a docstring with its sections, its example runs, and a page shows it."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tools.site.staging import DOCS

import tidegate as tg
from docs.reference import Name, names
from tidegate.advice.advice import Cost, Idle, Sessions
from tidegate.advice.choice import Choice
from tidegate.advice.join_graces import JoinGrace
from tidegate.advice.limits import LimitCost
from tidegate.advice.partners import JoinCost
from tidegate.testing import TopologyTestDriver, Window

pytest.importorskip("pyspark")  # tg.kafka and its neighbours import it; nothing here starts it

NAMES = names()
FUNCTIONS = [name for name in NAMES if callable(name.value) or isinstance(name.value, property)]


def by_name(name: Name) -> str:
    return name.dotted


def test_there_are_names() -> None:
    assert {"tg.stream", "tg.KStream.join", "tg.kafka.source", "tidegate.testing.TopologyTestDriver.pipe_input"} <= {
        name.dotted for name in NAMES
    }


@pytest.mark.parametrize("name", FUNCTIONS, ids=by_name)
def test_a_public_name_has_its_sections(name: Name) -> None:
    sections = name.sections
    assert name.docstring, "no docstring"
    for section, wanted in (("Args", name.parameters()), ("Attributes", name.attributes())):
        described = re.findall(r"^    (\*{0,2}\w+): \S", sections.get(section, ""), re.MULTILINE)
        assert described == wanted, f"{section} has {described}, and {wanted} are there"
    assert ("Returns" in sections) == name.returns(), "Returns is there where something is given back"
    for error in name.raises():
        assert f"    {error}: " in sections.get("Raises", ""), f"{error} is raised, and Raises does not say when"
    if not isinstance(name.value, property):
        assert "Examples" in sections, "no example"


@pytest.mark.parametrize("name", FUNCTIONS, ids=by_name)
def test_examples_run(name: Name) -> None:
    """Lines behind >>> run here, and print what they show. Blocks for Spark run in their lane (`docs/lanes.py`): here
    their calls are looked at.
    """
    example = name.sections.get("Examples", "")
    known: dict[str, Any] = {"tg": tg, "TopologyTestDriver": TopologyTestDriver, "Window": Window, "pa": pa, "pc": pc}
    known |= {"datetime": datetime, "UTC": UTC, "timedelta": timedelta}
    known["events"] = tg.stream("events", key="user", timestamp="ts")
    case = doctest.DocTestParser().get_doctest(example, known, name.dotted, None, 0)
    said: list[str] = []
    doctest.DocTestRunner().run(case, out=said.append)
    assert said == []
    for block in name.for_spark:
        for call in ast.walk(ast.parse(block)):
            if isinstance(call, ast.Call):
                check_call(call)
    assert isinstance(name.value, property) or case.examples or name.for_spark, "no example"


def check_call(call: ast.Call) -> None:
    """A call of one of our functions has arguments that it takes."""
    dotted = ast.unparse(call.func)
    if not re.fullmatch(r"tg(\.\w+)+", dotted):
        return
    function: Any = tg
    for part in dotted.split(".")[1:]:
        function = getattr(function, part)
    named = {each.arg: None for each in call.keywords if each.arg is not None}
    inspect.signature(function).bind(*[None for _ in call.args], **named)


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = re.findall(r"^::: ([\w.]+)\n    options:\n      heading: ([\w.]+)$", text, re.MULTILINE)
    top = [name for name in FUNCTIONS if inspect.isclass(name.value) or "." not in name.function.__qualname__]
    assert sorted(shown) == sorted((name.place, name.dotted) for name in top)
    for constant in NAMES:
        assert constant in FUNCTIONS or f"`{constant.dotted}`" in text


@pytest.mark.parametrize("kind", [Cost, Choice, Idle, Sessions, JoinCost, JoinGrace, LimitCost])
def test_parts_of_an_advice_are_on_a_page_with_their_fields(kind: Any) -> None:
    """Users read them as `advice.costs[0].late`; nobody makes one."""
    part = Name(kind.__name__, kind)
    described = re.findall(r"^    (\w+): \S", part.sections.get("Attributes", ""), re.MULTILINE)
    assert described == part.attributes()
    assert f"\n::: {part.place}\n" in (DOCS / "reference" / "running.md").read_text(encoding="utf-8")
