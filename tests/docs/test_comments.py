"""Modules and names that docstrings and comments mention exist, so that a rename leaves no stale reference."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, SOURCE

FETCHED = ROOT / "benchmarks" / "peers" / "target"
"""The environments of other engines, once `make bench-peers` has run."""
FILES = sorted(
    path
    for folder in ("src", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if FETCHED not in path.parents
)
ROOMS = "|".join(sorted(path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.name[0] not in "_."))
MODULE = re.compile(rf"(?<![\w./])(?:tidegate\.)?((?:{ROOMS})(?:\.\w+)+)")
PATH = re.compile(rf"(?<![\w./])((?:{ROOMS})(?:/\w+)*\.py)(?::([\w.]+\w))?")
FILE = re.compile(r"`(\w+\.py)`")
NAMES = {
    path.name
    for folder in ("src", "tests", "benchmarks", "tools", "parity", "examples")
    for path in (ROOT / folder).rglob("*.py")
}
OTHERS = ("testing.postgresql",)
"""Texts that look like a module of ours but are none."""
CODE = re.compile(r"^[ \t]*(?:>>>|\.\.\.)[^\n]*|^[ \t]*```python.*?```", re.MULTILINE | re.DOTALL)
"""Examples in docstrings: their variables may have the name of a room. `tests/docs` runs them."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a file, with their lines."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        starts = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
            yield token.start[0], CODE.sub("", token.string)
        before = token.type


def exists(dotted: str) -> bool:
    """Whether `kernel.state.tables.TableSpec` is a module, or a name that a module has."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        place = SOURCE.joinpath(*parts[:size])
        module = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
        if module.is_file():
            rest = parts[size:]
            return not rest or re.search(rf"\b{rest[0]}\b", module.read_text(encoding="utf-8")) is not None
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_comments_mention_exists(path: Path) -> None:
    stale = []
    for line, text in prose(path):
        modules = [match[1] for match in MODULE.finditer(text) if not match[1].endswith(".py")]
        missing = [name for name in modules if not exists(name) and name not in OTHERS]
        missing += [match[1] for match in PATH.finditer(text) if not (SOURCE / match[1]).is_file()]
        missing += [name for name in FILE.findall(text) if name not in NAMES]
        stale += [f"line {line}: {name}" for name in missing]
    assert stale == []


def test_examples_in_docstrings_are_no_prose(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    examples = "    >>> advice.gone\n\n    ```python\n    kernel.gone\n    ```\n"
    file.write_text(f'"""One.\n\n{examples}See `plan.gone`."""\n# kernel.gone\n')
    texts = [text for _, text in prose(file)]
    assert [match[1] for text in texts for match in MODULE.finditer(text)] == ["plan.gone", "kernel.gone"]
