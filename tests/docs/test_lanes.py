"""Every code block of a page is tested: a lane runs each Python block, and each command is valid."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from docs.lanes import LANES, lane, pages_of
from docs.pages import PAGES, ROOT, Block, blocks, text
from docs.reference import names
from tidegate.cli.main import parser

WITH_CODE = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "parity" / "README.md"]
LANGUAGES = {
    "python": "a lane runs it",
    "sh": "its commands are looked at here",
    "text": "what a block before it prints, or a drawing",
    "yaml": "tests/spark/test_pipelines.py runs it",
}


def commands(block: Block) -> list[str]:
    """The commands of a shell block, each in one line."""
    joined = block.code.replace("\\\n", " ") if block.language == "sh" else ""
    return [line for line in joined.splitlines() if line.strip()]


COMMANDS = [(block, line) for page in WITH_CODE for block in blocks(page) for line in commands(block)]
"""Each line of a shell block, with its block."""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
READERS_OWN = {"tests/topologies"}
"""Paths that belong to a reader and not to the repository."""


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=relative)
def test_a_block_has_a_language_that_a_test_knows(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{relative(page)}:{block.line} is {block.language!r}"


@pytest.mark.parametrize("page", WITH_CODE, ids=relative)
def test_no_code_hides_in_a_paragraph(page: Path) -> None:
    """Four blanks make a block of code too, which no test sees."""
    whole = re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"\n\n {4}(?! *[*\-\d])(\S.*)", whole) == []


def test_every_lane_has_a_file_that_runs_it() -> None:
    pages = {page for name in LANES for page in pages_of(name)}
    assert pages == {page for page in PAGES if any(block.language == "python" for block in blocks(page))}
    used = {lane(block) for page in pages for block in blocks(page) if block.language == "python"}
    assert used == set(LANES)
    for name, file in LANES.items():
        used_there = re.search(rf'(in_lanes|pages_of)\([^)]*"{name}"', (ROOT / file).read_text(encoding="utf-8"))
        assert used_there, f"{file} does not run {name}"


def test_every_example_for_spark_has_a_file_that_runs_it() -> None:
    for name in {name.lane for name in names() if name.for_spark}:
        assert f'in_lane("{name}")' in (ROOT / LANES[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_command_can_be_given(block: Block, line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program == "python" and arguments[0] == "-m":
        program, arguments = arguments[1], arguments[2:]
    match program:
        case "tidegate":
            parser().parse_args(arguments)
        case "make":
            for argument in arguments:
                name, is_variable, _ = argument.partition("=")
                assert (f"$({name})" if is_variable else f"\n{name}: ") in MAKEFILE, name
        case "pip":
            asked = [re.fullmatch(r"tidegate(?:\[(\w+)\])?|pytest|jupyter", word) for word in arguments[1:]]
            assert all(found and (found[1] is None or found[1] in EXTRAS) for found in asked), line
        case "python" | "pytest":
            assert arguments[0] in READERS_OWN or (ROOT / arguments[0]).exists(), line
        case _:
            assert (ROOT / f"{program.replace('.', '/')}.py").exists(), line
