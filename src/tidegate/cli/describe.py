"""`python -m tidegate describe`: a topology as text, as a Mermaid flowchart or as a picture."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any

from tidegate.cli.given import add_settings, is_endpoint, made, session, write
from tidegate.errors import DefinitionError
from tidegate.plan import Box, boxes, boxes_of, drawing, flowchart
from tidegate.spec.missing import require_pyspark

_DESCRIPTION = """Draws a topology: of a plan its graph, as code has it; of a checkpoint the operators whose state is in
it, with their keys, windows and graces. Windows are drawn to scale in the SVG."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    help = "draw a topology, or the operators of a checkpoint"
    command = commands.add_parser("describe", help=help, description=_DESCRIPTION)
    command.add_argument(
        "source", help="module:function that gives the table (it may take a SparkSession), or a checkpointLocation"
    )
    command.add_argument("--format", choices=["text", "mermaid", "svg"], default="text", help="what is printed (text)")
    command.add_argument("--json", action="store_true", help="print its parts as JSON instead")
    command.add_argument("--output", type=Path, metavar="FILE", help="write it to a file")
    add_settings(command)
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the topology. Raises TidegateError if the plan cannot be found, CheckpointError if there is no state."""
    if is_endpoint(parsed.source):
        raise DefinitionError(
            f"describe takes a plan or a checkpoint, not an endpoint ({parsed.source}), which knows metrics alone. "
            "Give module:function or the checkpointLocation of the query."
        )
    if _is_plan(parsed.source):
        table = made(parsed.source, lambda: session(parsed.conf))
        parts, title, text = boxes(table.node), repr(table), table.describe()
    else:
        require_pyspark("describe")
        from tidegate.runtime.spark.checkpoints.reading import operators

        parts = boxes_of(operators(session(parsed.conf, parsed.source), parsed.source))
        title, text = f"The operators of {parsed.source}", _text(parts)
    made_ = _json(parts) if parsed.json else _drawn(parsed.format, parts, title, text)
    if parsed.output is None:
        print(made_)
    else:
        write(parsed.output, made_ + "\n")
        print(f"Written: {parsed.output}")
    return 0


def _is_plan(source: str) -> bool:
    """Whether `source` is module:name; the path or address of a checkpoint has a slash or exists."""
    module, _, name = source.partition(":")
    return bool(name) and name.isidentifier() and "/" not in module and not Path(source).exists()


def _drawn(format: str, parts: Sequence[Box], title: str, text: str) -> str:
    if format == "svg":
        return drawing(parts, title, text)
    return flowchart(parts) if format == "mermaid" else text


def _text(parts: Sequence[Box]) -> str:
    return "\n".join(f"{box.lines[0]}\n{indent(chr(10).join(box.lines[1:]), '   ')}" for box in parts if box.inputs)


def _json(parts: Sequence[Box]) -> str:
    return json.dumps([_part(box) for box in parts])


def _part(box: Box) -> dict[str, Any]:
    windows = None if box.windows is None else {"kind": type(box.windows).__name__, **asdict(box.windows)}
    return {
        "kind": box.kind,
        "title": box.title,
        "details": list(box.details),
        "windows": windows,
        "inputs": list(box.inputs),
    }
