"""Docstrings name their noun: the first word says the thing ("Result of a step"), and not "What a step gives back"."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from docs.pages import SOURCE

NO_NOUN = {"What", "Which", "Who", "Whose", "Where", "That", "Those", "It"}


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The docstrings of modules, classes, functions and attributes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def without_noun(source: str) -> list[str]:
    """The docstrings of a file that begin with another word, each with its line."""
    found = strings(ast.parse(source))
    return [f"line {line}: {text[:40]}" for line, text in found if text.split(" ", 1)[0] in NO_NOUN]


def test_a_docstring_begins_with_its_noun() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        assert without_noun(path.read_text(encoding="utf-8")) == [], path


def test_one_that_does_not_is_found() -> None:
    assert without_noun('LIMIT = 3\n"""What waits at most."""') == ["line 2: What waits at most."]
    assert without_noun('LIMIT = 3\n"""Rows that wait at most."""') == []
