"""The notebooks of docs/notebooks, executed: each is made from a Python file whose cells begin with `# %%`."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.pages import DOCS

FOLDER = DOCS / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
_CELL = re.compile(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def files() -> dict[Path, Callable[[], str]]:
    """The functions that make the notebooks, by path."""
    return {path.with_suffix(".ipynb"): lambda path=path: notebook(path) for path in SOURCES}  # type: ignore[misc]


def notebook(source: Path) -> str:
    """The text of a notebook (format 4.5) with the cells of a file and their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    for number, (markdown, text) in enumerate(_CELL.findall(source.read_text(encoding="utf-8"))):
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
        if markdown:
            lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip().split("\n")]
            cells.append({**cell, "cell_type": "markdown", "source": _lines("\n".join(lines))})
            continue
        count = 1 + sum(one["cell_type"] == "code" for one in cells)
        code = text.strip()
        outputs = _outputs(code, names, f"{source.name} cell {number}", count)
        cells.append(
            {**cell, "cell_type": "code", "execution_count": count, "outputs": outputs, "source": _lines(code)}
        )
    metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _outputs(code: str, names: dict[str, Any], where: str, count: int) -> list[dict[str, Any]]:
    """The outputs that Jupyter would show: the printed text of the cell, and the value of its last expression."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)  # noqa: S102 - the cells are ours
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": _lines(value._repr_html_()), "text/plain": _lines(str(value))}
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def as_page(path: Path) -> str:
    """A notebook as Markdown, with its stored outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "text/html" in data:
                # A page has one heading of the first kind, and HTML in Markdown ends at an empty line.
                html = re.sub(r"(</?)h1>", r"\1h2>", "".join(data["text/html"]).replace("\n\n", "\n"))
                parts.append(f'<div class="notebook-output">\n{html}\n</div>')
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + f"\n\nThe notebook is `docs/notebooks/{path.name}`.\n"
