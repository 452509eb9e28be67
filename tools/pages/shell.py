"""docs/shell.md: every command with its arguments, from the parsers of the command line."""

from __future__ import annotations

import argparse

from tidegate.cli.main import parser

INTRODUCTION = """\
# The shell: `tidegate` and its commands

<!-- Made from the parsers of the command line by `python -m tools.pages` (make docs). -->

`tidegate COMMAND` is the same as `python -m tidegate COMMAND`. Commands that read a checkpoint start a Spark of their
own on this machine, unless one is active; `--conf` gives its settings. They read the last committed batch, and the
query may run meanwhile; only `drain` changes a checkpoint. An *endpoint* is the address of
[`tg.metrics.serve(spark)`](operations.md#switching-the-metrics-on). Every command exits with 0 if all is well, and with
2 if it could not run; the error says what to do.

| question | command |
|---|---|
"""


def page() -> str:
    """The text of docs/shell.md."""
    found = parser()
    listed = next(action for action in found._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    helps = {choice.dest: choice.help or "" for choice in listed._choices_actions}  # noqa: SLF001
    rows = "".join(f"| {helps[name]} | [`tidegate {name}`](#tidegate-{name}) |\n" for name in listed.choices)
    return INTRODUCTION + rows + "".join(_section(name, one) for name, one in listed.choices.items())


def _section(name: str, command: argparse.ArgumentParser) -> str:
    text = " ".join((command.description or "").split())
    actions = [one for one in command._actions if not isinstance(one, argparse._HelpAction)]  # noqa: SLF001
    rows = "".join(f"| {_names(one)} | {_cell(one.help or '')} |\n" for one in actions)
    table = f"\n| argument | |\n|---|---|\n{rows}" if rows else ""
    return f"\n## tidegate {name}\n\n{text}\n{table}"


def _names(action: argparse.Action) -> str:
    value = action.metavar or (" or ".join(map(str, action.choices)) if action.choices else action.dest)
    if not action.option_strings:
        return f"`{_cell(str(value))}`"
    takes = "" if action.nargs == 0 else f" {_cell(str(value))}"
    return f"`{action.option_strings[0]}{takes}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
