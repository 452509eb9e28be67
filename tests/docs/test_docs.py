"""The documentation holds: its code runs and prints the output it shows, and the names it mentions exist."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import re
import symtable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.pages import parity

import tidegate as tg
from docs.lanes import in_lanes, pages_of
from docs.pages import PAGES, ROOT, SOURCE, anchors, blocks, links, mentions, run

PLACE = re.compile(r"([\w./-]+\.py)(?::([\w.]+))?")
FILE = re.compile(r"[\w.-]*/[\w./-]*|[\w-]+\.(?:md|toml|py)")
DOTTED = re.compile(r"(?:tg|tidegate)(?:\.\w+)+")
GAPS = ROOT / "docs" / "notyet.md"
PARITY = ROOT / "docs" / "parity.md"
"""Names of Kafka Streams; tests/docs/test_parity.py has its rules."""
FOREIGN = [PARITY, *(ROOT / "docs" / "howto" / f"from-{other}.md" for other in ("kafka-streams", "flink"))]
"""Pages with names of others; tests/docs/test_howto.py runs the cells that are ours."""


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages_of("driver"), ids=relative)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its blocks that need no Spark in one namespace, in order; the text block after one is its output."""
    monkeypatch.chdir(tmp_path)
    run(page, {"__name__": page.name}, in_lanes("driver"))


READERS_OWN = {"spark", "df", "tables", "table", "save", "events", "servers"}
"""Names of a reader: the session, a stream, a folder, the table and the sink of a query, brokers."""


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_page_names_nothing_that_it_does_not_define(page: Path) -> None:
    """Its blocks one after the other, as a reader takes them; the README is a whole program."""
    code = "\n".join(block.code for block in blocks(page) if block.language == "python")
    whole = symtable.symtable(code, str(page), "exec")
    bound = {name.get_name() for name in whole.get_symbols() if name.is_assigned() or name.is_imported()}
    read = {
        name.get_name()
        for part in [whole, *whole.get_children()]
        for name in part.get_symbols()
        if name.is_referenced() and (part is whole or name.is_global())
    }
    given = set() if page.name == "README.md" else READERS_OWN
    assert read - bound - set(dir(builtins)) - given == set()


def test_streams_of_sparks_own_kafka_source_say_where_they_begin() -> None:
    """Unless told, Spark begins at the end of a topic: a table would lack all rows of before."""
    code = [block.code for page in PAGES for block in blocks(page) if block.language == "python"]
    code += [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    streams = [each for each in code if re.search(r'readStream\.format\("kafka"\)\s*\.option', each)]
    assert len(streams) == 2
    assert all('"startingOffsets"' in each for each in streams)


def readme_block(part: str) -> str:
    return next(block.code for block in blocks(ROOT / "README.md") if part in block.code)


def test_the_readme_runs_on_spark(spark: Any, tmp_path: Path) -> None:
    """Its blocks in order, in one namespace; only Kafka, which needs a broker, is left out."""
    from spark.alerts import as_it_was

    columns = "user string, ts timestamp, partition int, offset long"
    at = [datetime(2024, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 1, 2, 9)]
    records = [("A", at[0], 0, 0), ("A", at[1], 0, 1), ("B", at[2], 0, 2), ("B", at[3], 0, 3)]
    spark.createDataFrame(records, columns).coalesce(1).write.parquet(str(tmp_path / "events"))
    names: dict[str, Any] = {}
    rows = {}
    with as_it_was(spark):
        exec(readme_block("TopologyTestDriver"), names)
        exec(readme_block('format("console")').replace("/data/events", str(tmp_path / "events")), names)
        names["query"].processAllAvailable()
        names["query"].stop()
        for block in ("withWatermark", "on_window_close"):
            exec(readme_block(block), names)
            kept = names["counts"].select("user", "window.start", "window.end", "count")
            writer = kept.writeStream.outputMode("append").format("memory").queryName(block)
            writer.trigger(availableNow=True).start().awaitTermination()
            rows[block] = sorted(map(tuple, spark.table(block).collect()))
    assert len(rows["withWatermark"]) == 2
    assert rows["on_window_close"] == rows["withWatermark"]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_python_blocks_can_be_parsed(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.code, f"{relative(page)}:{block.line}")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_places_in_the_code_exist(page: Path) -> None:
    """`kernel/stage.py:Stage` is a file below src/tidegate (or the repository) and a name that the file defines."""
    for mention in mentions(page):
        place = PLACE.fullmatch(mention)
        if place is None:
            continue
        path = next((folder / place[1] for folder in (SOURCE, ROOT) if (folder / place[1]).is_file()), None)
        assert path is not None, f"{mention}: no such file"
        if place[2]:
            assert place[2] in defined(path), f"{mention}: {path.name} defines no {place[2]}"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_paths_exist(page: Path) -> None:
    for mention in mentions(page):
        if FILE.fullmatch(mention) and not PLACE.fullmatch(mention) and not mention.startswith("NNNN"):
            found = [folder / mention for folder in (SOURCE, ROOT, page.parent) if (folder / mention).exists()]
            assert found, f"{mention}: no such path"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in PAGES if page not in (GAPS, PARITY)], ids=relative)
def test_names_of_the_package_exist(page: Path) -> None:
    """`tg.count()` and `tidegate.testing.TopologyTestDriver` are there; docs/notyet.md has names that are not."""
    for mention in mentions(page):
        for name in DOTTED.findall(mention):
            assert exists(name), f"{mention}: {name} does not exist"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in (GAPS, *FOREIGN)], ids=relative)
def test_functions_and_classes_are_defined_somewhere(page: Path) -> None:
    """`until_window_closes(...)` and `BufferFullError` occur in this repository."""
    for mention in mentions(page):
        called = re.match(r"\.?(?:\w+\.)*(\w+)\(", mention)
        klass = re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+", mention)
        name = called.group(1) if called else mention if klass else None
        if name is not None:
            assert name in words(), f"{mention}: {name} occurs nowhere in the code"


def test_each_warning_has_a_row() -> None:
    """Calls of `warn`; the one in a loop is for each warning that `surprises` gives."""
    tables = blocks_of_rows(ROOT / "docs" / "errors.md", "warning for")
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "warn"]
    [surprises] = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "surprises"]
    given = [node for node in ast.walk(surprises) if isinstance(node, ast.Yield)]
    assert len(tables) == len(calls) - 1 + len(given)


def blocks_of_rows(page: Path, head: str) -> list[str]:
    """The rows of the table whose first column has this head."""
    [table] = re.findall(rf"^\| {head} \|.*\n\|[-|]+\|\n((?:\|.*\n?)+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return str(table).splitlines()


def test_what_is_missing_is_missing() -> None:
    """A name or `argument=` in the first column of docs/notyet.md must not exist: add one, and its row must go."""
    names = missing_names()
    assert names
    assert [(name, argument) for name, argument in names if exists(name, argument)] == []


def missing_names() -> list[tuple[str, str]]:
    """Names and arguments in the first columns of docs/notyet.md and, of gaps, in docs/parity.toml."""
    rows = re.findall(r"^\| (.+?) \|", GAPS.read_text(encoding="utf-8"), re.MULTILINE)
    rows += [f"`{row.here}`" for section in parity.sections() for row in section.rows if row.status == "not yet"]
    return sorted({name for row in rows for name in re.findall(r"`(tg\.[\w.]+)(?:\((\w+)=\))?`", row)})


@pytest.mark.parametrize(("name", "argument"), missing_names())
def test_what_is_missing_says_what_to_use_instead(name: str, argument: str) -> None:
    *path, last = name.split(".")[1:]
    owner: Any = tg
    for part in path:
        owner = getattr(owner, part)
    if isinstance(owner, type) and not argument:
        owner = object.__new__(owner)
    with pytest.raises(tg.TidegateError) as caught:
        getattr(owner, last)(None, **{argument: None})
    assert "(docs/notyet.md). Until then: " in str(caught.value)
    assert (argument or last) in str(caught.value)
    if not argument:
        assert not hasattr(owner, last)


@cache
def defined(path: Path) -> frozenset[str]:
    """Functions, classes, methods and constants of a module; methods as Class.method."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= _names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in _names(inner)}
    return frozenset(found)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def exists(dotted: str, argument: str = "") -> bool:
    """Whether tg.a.b or tidegate.module.name can be reached, and takes the argument if one is named."""
    first, *rest = dotted.split(".")
    value: Any = tg
    path = "tidegate" if first == "tg" else first
    for part in rest:
        path += f".{part}"
        if not hasattr(value, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(path)
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return not argument or argument in inspect.signature(value).parameters


@cache
def words() -> frozenset[str]:
    """Every word of the Python files of this repository."""
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
