"""`tidegate advise`: its table, JSON and page, its exit codes, the files that it reads, and what it refuses."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from advice.recordings import SCHEMA, drawn
from tidegate.advice.files import read
from tidegate.cli.main import main
from tidegate.errors import DefinitionError, DefinitionTypeError, InputError

COLUMNS = ["--key", "k", "--timestamp", "ts"]
ASKED = [*COLUMNS, "--window", "10 ms", "--partition", "p", "--offset", "o", "--arrival", "at"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.Table.from_pylist(drawn(5, least=300, most=400, bad=False).records, SCHEMA)


@pytest.fixture
def parquet(table: pa.Table, tmp_path: Path) -> str:
    pq.write_table(table, tmp_path / "events.parquet")
    return str(tmp_path / "events.parquet")


def test_table(parquet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", parquet, *ASKED, "--graces", "0 s, 20 ms", "--alert", "count < 2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ +0 .* today$", said, re.MULTILINE)
    assert "false  missed" in said
    assert "\nChosen: " in said


def test_json_has_what_python_has(parquet: str, table: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", parquet, *ASKED, "--grace", "3 ms", "--advance", "5 ms", "--json"]) == 0
    windows = tg.TimeWindows.of_size_and_grace("10 ms", "3 ms").advance_by("5 ms")
    advice = tg.advise(table, key="k", timestamp="ts", windows=windows, partition="p", offset="o", arrival="at")
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(advice.json())
    assert (said["format"], said["records"]) == (1, table.num_rows)


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_sliding_windows_and_sessions(
    kind: str, parquet: str, table: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [argument for argument in ASKED if argument not in ("--window", "10 ms")]
    option = "--time-difference" if kind == "sliding" else "--inactivity-gap"
    assert main(["advise", parquet, *asked, option, "10 ms", "--grace", "3 ms", "--json"]) == 0
    windows = tg.SlidingWindows(10, 3) if kind == "sliding" else tg.SessionWindows(10, 3)
    advice = tg.advise(table, key="k", timestamp="ts", windows=windows, partition="p", offset="o", arrival="at")
    assert json.loads(capsys.readouterr().out) == json.loads(advice.json())
    assert main(["advise", parquet, *asked, option, "10 ms", "--advance", "5 ms"]) == 2
    assert "`--advance` is of hopping windows" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["advise", parquet, *ASKED, option, "10 ms"])
    with pytest.raises(SystemExit):
        main(["advise", parquet, *asked])


def test_the_page_stands_alone(parquet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "advice.html"
    assert main(["advise", parquet, *ASKED, "--alert", "k == '<b>' or count < 2", "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert str(page) in capsys.readouterr().out
    assert text.count("<svg") >= 7
    assert not re.search(r"<script|<link|<img|src=|url\((?!#)|https?:", text)


def test_names_of_keys_are_escaped(table: pa.Table) -> None:
    hostile = table.set_column(0, "k", pa.array(["<script>&"] * table.num_rows))
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    page = tg.advise(hostile, key="k", timestamp="ts", windows=windows, partition="p", offset="o").html()
    assert "&lt;script&gt;&amp;" in page
    assert "<script>" not in page


@pytest.mark.parametrize(("allowed", "code"), [("0.9", 0), ("0.0001", 1)])
def test_exit_code_for_ci(parquet: str, allowed: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", parquet, *ASKED, "--fail-if-late-share", allowed]) == code
    assert "Chosen" in capsys.readouterr().out


def test_what_a_result_holds(parquet: str, capsys: pytest.CaptureFixture[str]) -> None:
    aggregates = ["--aggregate", "n=count()", "--aggregate", "most=max(o)"]
    assert main(["advise", parquet, *ASKED, *aggregates, "--alert", "n < 2 and most > 0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"][0]["alerts"] > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--alert", "count <"], r"`alert` is 'count <': .*Use names of columns"),
        (["--alert", "open('x')"], r"is none of these"),
        (["--alert", "n < 9223372036854775808"], r"9223372036854775808 is more than a column of whole numbers holds"),
        (["--alert", "n < " + 5000 * "-" + "1"], r"it is nested too deeply"),
        (["--alert", "total > 3"], r"cannot be computed: .*The columns of a result are k, start, end, count"),
        (["--alert", "count + 1"], r"It must give one boolean for each"),
        (["--aggregate", "n=first(o)"], r"Write name=function\(column\)"),
        (["--key", "user"], r"no column 'user'. Its columns are k, ts, p, o, at"),
        (["--grace", "soon"], r"`grace` is 'soon', which is not a duration"),
        (["--graces", "-1 s"], r"`graces` has -1 second: it must not be negative"),
        (["--target", "1"], r"`target` is 1.0"),
        (["--trigger", "0 s"], r"`trigger` is 0 milliseconds"),
        (["--fail-if-late-share", "nan"], r"--fail-if-late-share is nan: it is a share, from 0 to 1"),
        (["--html", "nowhere/advice.html"], r"'nowhere/advice.html' cannot be written: "),
    ],
)
def test_what_is_refused(parquet: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", parquet, *ASKED, *more]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_what_python_refuses(table: pa.Table) -> None:
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    joined = tg.JoinWindows.of_time_difference_with_no_grace("10 ms")
    for other in (tg.BatchWindows.of_size("10 ms"), tg.UnlimitedWindows.start_on(0), joined, "10 ms"):
        with pytest.raises(DefinitionTypeError, match=r"Advice is about windows with a grace"):
            tg.advise(table, key="k", timestamp="ts", windows=other)
    with pytest.raises(DefinitionError, match=r"Give arrival="):
        tg.advise(table, key="k", timestamp="ts", windows=windows, trigger="1 second")
    with pytest.raises(DefinitionTypeError, match=r"`alert` is 5"):
        tg.advise(table, key="k", timestamp="ts", windows=windows, alert=5)
    with pytest.raises(DefinitionTypeError, match=r"aggregate 'x' is .*do not depend on order"):
        tg.advise(table, key="k", timestamp="ts", windows=windows, aggregates={"x": tg.last("o")})
    with pytest.raises(InputError, match=r"which is no table"):
        tg.advise([{"k": "a"}], key="k", timestamp="ts", windows=windows)
    for name, other in (("key", None), ("graces", "1 hour"), ("graces", 5), ("aggregates", [tg.count()])):
        with pytest.raises(DefinitionTypeError, match=rf"`{name}` is "):
            tg.advise(table, **{"key": "k", "timestamp": "ts", "windows": windows, name: other})
    for given in (True, None, pa.scalar(True), {"a": 1}, table):
        with pytest.raises(DefinitionError, match=r"`alert` gives .* It must give one boolean for each"):
            tg.advise(table, key="k", timestamp="ts", windows=windows, alert=lambda _, given=given: given)
    holes = table.set_column(3, "o", pa.nulls(table.num_rows, pa.int64()))
    with pytest.raises(InputError, match=r"Record 0 with a key and a time has no offset"):
        tg.advise(holes, key="k", timestamp="ts", windows=windows, partition="p", offset="o")


def test_a_frame_that_arrow_cannot_read_is_refused() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"k": ["a", 1], "ts": [1, 2]})
    with pytest.raises(InputError, match=r"The recording is a pandas DataFrame, which Arrow cannot read: .*column k"):
        tg.advise_limit(frame, key="k", timestamp="ts")


@pytest.mark.parametrize("name", ["start", "end"])
def test_an_alert_over_two_columns_of_one_name_is_refused(name: str) -> None:
    """Rows of a result have the bounds of their window under these names, which took the place of the key."""
    rows = pa.table({name: ["x", "y"], "k": ["x", "y"], "ts": [1, 2]})
    windows = tg.TimeWindows.of_size_with_no_grace("10 ms")
    with pytest.raises(DefinitionError, match=f"two columns called '{name}'.*Rename"):
        tg.advise(rows, key=name, timestamp="ts", windows=windows, alert=f"{name} == 'x'")
    aggregates = {name: tg.count()}
    with pytest.raises(DefinitionError, match=f"two columns called '{name}'.*Rename"):
        tg.advise(rows, key="k", timestamp="ts", windows=windows, aggregates=aggregates, alert=f"{name} > 5")
    for asked in ({"key": name}, {"key": "k", "aggregates": aggregates}):
        assert tg.advise(rows, timestamp="ts", windows=windows, **asked).records == 2


def test_files(table: pa.Table, tmp_path: Path) -> None:
    """One table in each format, in several files, and with times as text."""
    half = table.num_rows // 2
    texts = table.set_column(
        1, "ts", pa.array([f"1970-01-01T00:00:00.{ts % 1000:03}Z" for ts in table["ts"].to_pylist()])
    )
    for number, part in enumerate((texts.slice(0, half), texts.slice(half))):
        (tmp_path / "parquet").mkdir(exist_ok=True)
        (tmp_path / "csv").mkdir(exist_ok=True)
        (tmp_path / "json").mkdir(exist_ok=True)
        pq.write_table(part, tmp_path / "parquet" / f"{number}.parquet")
        pa.csv.write_csv(part, tmp_path / "csv" / f"{number}.csv")
        lines = "\n".join(json.dumps(row) for row in part.to_pylist())
        (tmp_path / "json" / f"{number}.jsonl").write_text(lines)
    (tmp_path / "parquet" / "_SUCCESS").write_text("")
    for empty in ("csv/0-empty.csv", "json/2.json"):
        (tmp_path / empty).write_text("")
    asked = {"key": "k", "timestamp": "ts", "windows": tg.TimeWindows.of_size_with_no_grace("10 ms"), "arrival": "at"}
    expected = tg.advise(texts, **asked).as_dict()
    for format in ("parquet", "csv", "json"):
        assert tg.advise(tmp_path / format, **asked).as_dict() == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-01-01T00:00:09", "2026-01-01T00:00:09.5"),
        ("2026-01-01T00:00:09Z", "2026-01-01T00:00:09.5Z"),
        ("2026-01-01T01:00:09+01:00", "2026-01-01 00:00:09.500000"),
        ("2026-01-01", "2026-01-01T00:00:09"),
    ],
)
@pytest.mark.parametrize("format", ["csv", "json"])
def test_times_may_be_written_in_another_way_in_each_file(tmp_path: Path, format: str, one: str, other: str) -> None:
    """Arrow takes times of whole seconds for times, and those with fractions in JSON for text."""
    for name, time in (("a", one), ("b", other)):
        line = json.dumps({"k": "x", "ts": time}) if format == "json" else f"k,ts\nx,{time}"
        (tmp_path / f"{name}.{format}").write_text(f"{line}\n")
    windows = tg.TimeWindows.of_size_with_no_grace("10 seconds")
    found = tg.advise(tmp_path, key="k", timestamp="ts", windows=windows, alert="start == 1767225600000 and count == 2")
    assert (found.records, found.skipped["bad_timestamp"]) == (2, 0)
    joined = tg.advise_join(tmp_path, tmp_path, key="k", timestamp="ts")
    assert joined.pairs(500, 0) == (2 if one == "2026-01-01" else 3)


@pytest.mark.parametrize("values", [False, True])
def test_times_that_spark_wrote_may_lie_in_any_year(tmp_path: Path, values: bool) -> None:
    ever = [each and datetime.fromisoformat(each) for each in ("0001-01-01", "2026-01-01", None, "9999-12-31")]
    rows = pa.table({"k": ["a"] * 4, "ts": pa.array(ever, pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    assert read(tmp_path / "a.parquet", ["ts"], values=values)["ts"].to_pylist() == ever


@pytest.mark.parametrize("windows", [tg.TimeWindows.of_size_with_no_grace("1 s"), tg.SlidingWindows(10, 0)])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, windows: Any) -> None:
    """Other columns may be there twice."""
    of_key, of_value = (pa.table([["a"], [1], ["b"]], names=["k", "ts", name]) for name in ("k", "v"))
    asked: dict[str, Any] = {"key": "k", "timestamp": "ts", "windows": windows}
    with pytest.raises(DefinitionError, match="The recording has two columns 'k'"):
        tg.advise(of_key, **asked)
    pq.write_table(of_key, tmp_path / "twice.parquet")
    (tmp_path / "twice.csv").write_text("k,ts,k\na,1,b\n")
    for name in ("twice.parquet", "twice.csv"):
        with pytest.raises(InputError, match=rf"{name}' has two columns 'k'"):
            tg.advise(tmp_path / name, **asked)
    (tmp_path / "others.csv").write_text("k,ts,v,v\na,1,b,c\n")
    for records in (of_value.append_column("v", [["c"]]), tmp_path / "others.csv"):
        assert tg.advise(records, **asked).records == 1


def test_a_record_of_a_file_lacks_a_value_if_all_other_columns_are_null(tmp_path: Path) -> None:
    """The other columns may differ from file to file, also in type."""
    record = {"k": ["a", "a", "a"], "ts": [1, 2, 90]}
    first = pa.table(record | {"v": [1, None, None], "text": ["x", None, None]})
    second = pa.table(record | {"v": ["1", None, None], "more": pa.array([None, [5], None], pa.list_(pa.int64()))})
    for number, part in enumerate((first, second, first.slice(0, 0))):
        for format in ("parquet", "json"):
            (tmp_path / format).mkdir(exist_ok=True)
        pq.write_table(part, tmp_path / "parquet" / f"{number}.parquet")
        lines = "\n".join(json.dumps(row) for row in part.to_pylist())
        (tmp_path / "json" / f"{number}.jsonl").write_text(lines or json.dumps(first.slice(0, 1).to_pylist()[0]))
    asked = {"key": "k", "timestamp": "ts"}
    windows = tg.SlidingWindows(10, 0)
    for format in ("parquet", "json"):
        assert tg.advise(tmp_path / format, windows=windows, **asked).skipped["null_value"] == 3
    assert tg.advise_limit(tmp_path / "json", **asked).skipped["null_value"] == 3
    assert tg.advise_join(tmp_path / "json", tmp_path / "json", **asked).skipped["right"]["null_value"] == 3
    tumbling = tg.TimeWindows.of_size_with_no_grace("10 ms")
    with pytest.raises(InputError, match="columns of different types"):
        tg.advise(tmp_path / "json", windows=tumbling, aggregates={"most": tg.max("v")}, **asked)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no file or folder"):
        read(tmp_path / "none.parquet", ["k"])
    with pytest.raises(InputError, match=r"holds no file with an ending of"):
        read(tmp_path, ["k"])
    (tmp_path / "x.json").write_text("")
    with pytest.raises(InputError, match=r"x.json' cannot be read as json: Empty"):
        read(tmp_path, ["k"])
    (tmp_path / "x.avro").write_text("k")
    with pytest.raises(InputError, match=r"has none of the endings"):
        read(tmp_path / "x.avro", ["k"])
    (tmp_path / "x.parquet").write_text("k")
    with pytest.raises(InputError, match=r"cannot be read as parquet"):
        read(tmp_path / "x.parquet", ["k"])
    table = pa.table({"k": ["a"], "ts": ["yesterday"]})
    with pytest.raises(InputError, match=r"text that is no time in ISO 8601"):
        tg.advise(table, key="k", timestamp="ts", windows=tg.TimeWindows.of_size_with_no_grace("1 s"))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("kafka://broker:9092", "the path is 'kafka://broker:9092'. Write kafka://HOST:PORT/TOPIC."),
        ("kafka://broker:9092/events", "a topic needs --value, the schema of its values"),
        ("KAFKA://[::1]:9092/events", "a topic needs --value, the schema of its values"),
        ("kafka://[broker/events", "a topic needs --value, the schema of its values"),
    ],
)
def test_a_topic_must_be_named(path: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", path, *ASKED]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("path", ["http://[events", "http://h:port/events", "", "a" * 5_000, "x/" * 3_000])
def test_a_path_that_is_none(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["advise", path, *ASKED], ["advise-join", path, path, *COLUMNS], ["advise-limit", path, *COLUMNS]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert said.startswith("tidegate: ")
        assert len(said) < 500


def test_a_folder_in_which_nobody_may_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    (tmp_path / "events.csv").touch()
    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(InputError, match=r"cannot be listed: Permission denied \('.*'\)\. Name a Parquet, CSV or JSON"):
        tg.advise(tmp_path, key="k", timestamp="ts", windows=tg.TimeWindows.of_size_with_no_grace("1 s"))


def test_a_format_that_is_none(parquet: str) -> None:
    """Files of any other format were read as JSON."""
    with pytest.raises(tg.DefinitionError, match=r"^`format` is 'orc'\. Use one of 'parquet', 'csv', 'json'\.$"):
        tg.advise(
            parquet, key="user", timestamp="ts", windows=tg.TimeWindows.of_size_with_no_grace("1 s"), format="orc"
        )


class _Spark:
    """A session whose reader tells what it is asked for; it finds one recording alone."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.asked = table, ""

    @property
    def read(self) -> Any:
        return self

    def option(self, name: str, value: str) -> Any:
        return self

    def format(self, name: str) -> Any:
        self.asked = name
        return self

    def load(self, path: str) -> pa.Table:
        from pyspark.errors import AnalysisException

        if not Path(path).exists():
            raise AnalysisException("[PATH_NOT_FOUND] Path does not exist.\nIt is not there.")
        return self.table


@pytest.mark.parametrize(
    ("name", "more", "asked"),
    [
        ("events.csv", [], "csv"),
        ("events.csv.gz", [], "csv"),
        ("events.JSONL.gz", [], "json"),
        ("events.pq", [], "parquet"),
        ("events", [], "parquet"),
        ("events", ["--format", "json"], "json"),
        ("folder/part-1.csv", [], "csv"),
        ("folder/day=1/part-1.ndjson", [], "json"),
        ("folder/_SUCCESS", [], "parquet"),
    ],
)
def test_spark_reads_files_in_the_format_of_their_names(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: list[str], asked: str
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    spark = _Spark(table)
    monkeypatch.setattr("tidegate.cli.advise.session", lambda _: spark)
    path = str(tmp_path / name.partition("/")[0])
    assert main(["advise", path, *ASKED, "--spark", *more]) == 0
    assert spark.asked == asked


def test_what_spark_cannot_read(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("tidegate.cli.advise.session", lambda _: _Spark(table))
    assert main(["advise", str(tmp_path / "nothing.csv"), *ASKED, "--spark"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tidegate: Spark cannot read ")
    assert "nothing.csv' as csv: [PATH_NOT_FOUND] Path does not exist. It is not there. Give a path" in said
