"""The documentation as data: its pages, their code blocks, and the names they mention."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tidegate"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A code block of a page; `shown` is the text block right after it: its expected output."""

    page: Path
    line: int
    language: str
    code: str
    shown: str | None


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    whole = text(page)
    found = list(_FENCE.finditer(whole))
    result = []
    for match, after in zip_longest(found, found[1:]):
        adjacent = after is not None and not whole[match.end() : after.start()].strip()
        shown = after.group(2) if after is not None and adjacent and after.group(1) == "text" else None
        line = whole.count("\n", 0, match.start()) + 2
        result.append(Block(page, line, match.group(1), match.group(2), shown))
    return result


def run(
    page: Path,
    names: dict[str, Any],
    taken: Callable[[Block], bool] = lambda block: True,
    instead: Mapping[str, str] | None = None,
) -> int:
    """Run the Python blocks of a page in order, in one namespace, and compare their output with the text blocks.

    Runs the blocks for which `taken` is true, and returns their number. `instead` maps folders and addresses in the
    code to those of this machine.
    """
    ran = [block for block in blocks(page) if block.language == "python" and taken(block)]
    for block in ran:
        printed = io.StringIO()
        source = compile("\n" * (block.line - 1) + replaced(block.code, instead), str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(source, names)
        assert printed.getvalue() == replaced(block.shown or "", instead), f"{page}:{block.line}"
    return len(ran)


def replaced(code: str, instead: Mapping[str, str] | None) -> str:
    for written, used in (instead or {}).items():
        code = code.replace(written, used)
    return code


def mentions(page: Path) -> list[str]:
    """Texts in backticks outside code blocks."""
    return _CODE.findall(_FENCE.sub("", text(page)))


def links(page: Path) -> list[str]:
    return [target for target in _LINK.findall(_FENCE.sub("", text(page))) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text(page)), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}
