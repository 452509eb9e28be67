"""The demo without Spark: its reports, its costs, its check, its picture, and its topology on the driver."""

from __future__ import annotations

import io
import re
import webbrowser
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import tidegate as tg
from tidegate.cli import main as cli
from tidegate.cli.main import main
from tidegate.demo import alerts, check, flights, grace, picture, replay, show, topology
from tidegate.demo import run as demo
from tidegate.demo.check import problems
from tidegate.demo.stream import Counts, Run
from tidegate.testing import TopologyTestDriver

SIX_HOURS = pd.Timedelta(hours=6)
SIX_HOURS_MS = 6 * 3_600_000

OLD_MATPLOTLIB = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib.*")
"""matplotlib 3.8 calls a pyparsing that has renamed its functions."""


@pytest.fixture(scope="module")
def all_flights() -> pd.DataFrame:
    return flights.read_flights()


@pytest.fixture(scope="module")
def all_reports(all_flights: pd.DataFrame) -> pd.DataFrame:
    return flights.reports(all_flights)


@pytest.fixture(scope="module")
def blizzard(all_flights: pd.DataFrame) -> pd.DataFrame:
    """Four days of reports: one as usual, two in the snow, one after it."""
    days = (all_flights["month"] == 2) & all_flights["day"].between(7, 10)
    return flights.reports(all_flights[days])


@pytest.fixture(scope="module")
def right(blizzard: pd.DataFrame) -> Run:
    """A correct run, made from the direct computation."""
    return run_of(blizzard, check.directly(blizzard, SIX_HOURS_MS))


def run_of(reports: pd.DataFrame, expected: check.Expected) -> Run:
    rows = pd.DataFrame(
        [
            (origin, start, result.timestamp, result.departures, result.mean_delay)
            for (origin, start), result in sorted(expected.final.items())
        ],
        columns=["origin", "start", "timestamp", "departures", "mean_delay"],
    )
    for name in ("start", "timestamp"):
        rows[name] = pd.to_datetime(rows[name], unit="ms", utc=True)
    counts = Counts(
        batches=2,
        records=len(reports),
        late=sum(expected.late.values()),
        bad_timestamps=expected.bad_timestamps,
        emitted=len(rows),
        stream_time=expected.stream_time,
    )
    return Run(1_000, alerts.with_alerts(rows, alerts.timetable(reports)), counts, 1.0)


# --- reports ------------------------------------------------------------------------------------------------------


def test_every_flight_is_one_report_and_the_bad_ones_are_named(all_reports: pd.DataFrame) -> None:
    assert len(all_reports) == 336_776
    assert all_reports["status"].value_counts().to_dict() == {
        flights.LANDED: 327_346,
        flights.CANCELLED: 8_255,
        flights.NO_AIR_TIME: 1_175,
    }
    assert all_reports["departure"].isna().sum() == 8_255
    assert (all_reports.loc[all_reports["departure"].isna(), "status"] == flights.CANCELLED).all()


def test_departures_are_the_local_times_that_the_data_gives_too(all_flights: pd.DataFrame) -> None:
    # dep_time is not read by the demo: it is the clock in the tower, 2400 at midnight.
    departure = flights.scheduled_utc(all_flights) + pd.to_timedelta(all_flights["dep_delay"], unit="m")
    local = departure.dt.tz_convert("America/New_York")
    clock = local.dt.hour * 100 + local.dt.minute
    left = all_flights["dep_time"].notna()

    assert (clock[left] == all_flights.loc[left, "dep_time"] % 2400).all()


@pytest.mark.parametrize(
    ("month", "day", "hour", "minute", "delay", "departure"),
    [
        (1, 1, 5, 15, 2, "2013-01-01T10:17Z"),
        (1, 1, 23, 59, 10, "2013-01-02T05:09Z"),
        # Clocks go from 02:00 to 03:00 on 10 March and from 02:00 back to 01:00 on 3 November.
        (3, 9, 23, 0, 300, "2013-03-10T09:00Z"),
        (11, 2, 23, 0, 300, "2013-11-03T08:00Z"),
        (7, 1, 6, 0, -5, "2013-07-01T09:55Z"),
    ],
)
def test_departure_in_utc(month: int, day: int, hour: int, minute: int, delay: int, departure: str) -> None:
    assert flights.reports(one_flight(month, day, hour, minute, delay, 60))["departure"][0] == pd.Timestamp(departure)


def one_flight(month: int, day: int, hour: int, minute: int, delay: float | None, air: float | None) -> pd.DataFrame:
    when = {"year": 2013, "month": month, "day": day, "hour": hour, "minute": minute}
    left = None if delay is None else 1.0
    row = {**when, "origin": "JFK", "dest": "BOS", "dep_time": left, "dep_delay": delay, "air_time": air}
    return pd.DataFrame([row]).astype({"dep_time": float, "dep_delay": float, "air_time": float})


def test_when_reports_come_in() -> None:
    landed = one_flight(1, 1, 12, 0, 30, 40)
    slow = one_flight(1, 1, 12, 0, 0, 55)
    lost = one_flight(1, 1, 12, 0, 10, None)
    cancelled = one_flight(1, 1, 12, 0, None, None)

    reports = flights.reports(pd.concat([landed, slow, lost, cancelled], ignore_index=True))

    minutes = (reports["reported"] - pd.Timestamp("2013-01-01T17:00Z")) / pd.Timedelta(minutes=1)
    assert list(zip(reports["status"], minutes, strict=True)) == [
        (flights.CANCELLED, 0),
        (flights.LANDED, 55),
        (flights.NO_AIR_TIME, 10 + 55),
        (flights.LANDED, 30 + 40),
    ]


def test_reports_are_numbered_in_the_order_they_come_in(all_reports: pd.DataFrame) -> None:
    assert all_reports["reported"].is_monotonic_increasing
    assert all_reports["offset"].tolist() == list(range(len(all_reports)))
    assert (all_reports["partition"] == 0).all()


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda _name: None)

    with pytest.raises(tg.TidegateError, match=r"pip install 'tidegate\[demo\]'"):
        flights.packaged_flights()


@pytest.mark.parametrize("size", [1_000, 1_501, 10_000])
def test_files_hold_the_reports_in_order(blizzard: pd.DataFrame, tmp_path: Path, size: int) -> None:
    files = replay.cut(blizzard, size, tmp_path / "reports")

    written = sorted((tmp_path / "reports").iterdir(), key=lambda path: path.stat().st_mtime)
    tables = [pq.read_table(path) for path in written]
    assert len(tables) == files == -(-len(blizzard) // size)
    assert {len(table) for table in tables[:-1]} <= {size}
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == blizzard["offset"].tolist()
    assert sum(table["departure"].null_count for table in tables) == blizzard["departure"].isna().sum()


# --- costs --------------------------------------------------------------------------------------------------------


def test_costs_of_the_whole_year(all_reports: pd.DataFrame) -> None:
    six, twelve = grace.costs(all_reports, [SIX_HOURS, 2 * SIX_HOURS])

    assert (six.late, six.results, six.alerts, six.wrong_alerts) == (734, 21_089, 206, 2)
    assert (twelve.late, twelve.incomplete, twelve.wrong_alerts) == (0, 0, 0)
    assert six.median_wait == pd.Timedelta(hours=6, minutes=55)


@pytest.mark.parametrize("hours", grace.GRACES_H)
def test_costs_and_check_agree(blizzard: pd.DataFrame, hours: int) -> None:
    span = pd.Timedelta(hours=hours)
    expected = check.directly(blizzard, hours * 3_600_000)

    (cost,) = grace.costs(blizzard, [span])
    late = grace.too_late(blizzard, span)

    assert (cost.late, cost.results) == (sum(expected.late.values()), len(expected.final))
    assert cost.alerts == len(check.alerts_directly(blizzard, expected))
    starts = [int(start.timestamp() * 1000) for start in late["start"]]
    assert Counter(zip(late["origin"], starts, strict=True)) == expected.late


def test_longer_graces_cost_time_and_save_reports(blizzard: pd.DataFrame) -> None:
    costs = grace.costs(blizzard, grace.usual_graces(SIX_HOURS))

    assert [cost.late for cost in costs] == sorted((cost.late for cost in costs), reverse=True)
    assert [cost.median_wait for cost in costs] == sorted(cost.median_wait for cost in costs)


def test_a_grace_longer_than_the_stream_lets_nothing_out(blizzard: pd.DataFrame) -> None:
    (cost,) = grace.costs(blizzard, [pd.Timedelta(days=99)])

    assert (cost.late, cost.results, cost.alerts) == (0, 0, 0)
    assert pd.isna(cost.median_wait)


def test_hours_without_any_departure(all_reports: pd.DataFrame) -> None:
    silent = alerts.hours_without_any(all_reports, alerts.timetable(all_reports))

    days = silent["start"].dt.tz_convert("America/New_York").dt.strftime("%d %b").value_counts()
    assert days.to_dict() == {"08 Feb": 13, "09 Feb": 16, "12 Sep": 1, "05 Dec": 1}


# --- check --------------------------------------------------------------------------------------------------------


def test_a_right_run_has_no_problems(blizzard: pd.DataFrame, right: Run) -> None:
    expected = check.directly(blizzard, SIX_HOURS_MS)

    assert len(right.rows) > 150
    assert right.counts.late > 0
    assert right.rows["alert"].sum() > 5
    assert problems([right, right], blizzard, expected) == []


def spoilt(rows: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    rows = rows.copy()
    rows.loc[3, column] = value
    return rows


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows.drop(3), "is final, but did not come out"),
        (lambda rows: pd.concat([rows, rows.iloc[[3]]]), "came out twice"),
        (lambda rows: spoilt(rows, "departures", 999), r"came out as \(999,"),
        (lambda rows: spoilt(rows, "mean_delay", 0.123), r"came out as \(\d+, 0.123"),
        (lambda rows: spoilt(rows, "start", pd.Timestamp("2014-01-01T00:00Z")), "came out, but is not final"),
        (lambda rows: rows.assign(alert=True), "raised an alert, but should not"),
        (lambda rows: rows.assign(alert=False), "raised no alert, but should"),
    ],
)
def test_a_wrong_row_is_a_problem(blizzard: pd.DataFrame, right: Run, spoil, said: str) -> None:
    wrong = Run(right.batch_size, spoil(right.rows), right.counts, 1.0)

    found = problems([right, wrong], blizzard, check.directly(blizzard, SIX_HOURS_MS))

    assert any(re.search(said, text) for text in found)
    assert "the batch sizes gave different rows" in found


@pytest.mark.parametrize("name", ["late", "bad_timestamps", "emitted", "stream_time", "records"])
def test_a_wrong_count_is_a_problem(blizzard: pd.DataFrame, right: Run, name: str) -> None:
    counts = Counts(**{**vars(right.counts), name: 7})

    (found,) = problems([Run(1_000, right.rows, counts, 1.0)], blizzard, check.directly(blizzard, SIX_HOURS_MS))

    assert "7" in found


# --- topology -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [700, 1_501])
@pytest.mark.parametrize("span", ["0 hours", "3 hours", "6 hours"])
def test_driver_gives_what_the_check_expects(blizzard: pd.DataFrame, batch_size: int, span: str) -> None:
    reports = tg.stream("reports", key="origin", timestamp="departure", partition="partition", offset="offset")
    driver = TopologyTestDriver(topology.final_departures(reports, span))
    expected = check.directly(blizzard, topology.windows(span).grace_ms)

    records = records_of(blizzard)
    for first in range(0, len(records), batch_size):
        driver.pipe_batch(records[first : first + batch_size])

    assert check.differences(rows_of(driver), expected) == []
    assert driver.drops["late"] == sum(expected.late.values())
    assert driver.drops["bad_timestamp"] == expected.bad_timestamps > 0
    assert driver.metrics()["stream_time"] == expected.stream_time


def records_of(reports: pd.DataFrame) -> list[dict[str, object]]:
    frame = reports[["partition", "offset", "origin", "departure", "dep_delay"]].astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def rows_of(driver: TopologyTestDriver) -> pd.DataFrame:
    rows = pd.DataFrame(driver.read_output())
    rows["start"] = [window.start for window in rows.pop("window")]
    for name in ("start", "timestamp"):
        rows[name] = pd.to_datetime(rows[name], unit="ms", utc=True)
    return rows


# --- what is shown ------------------------------------------------------------------------------------------------


def story(reports: pd.DataFrame, run: Run) -> picture.Story:
    return picture.Story(
        run.rows,
        grace.too_late(reports, SIX_HOURS),
        alerts.timetable(reports),
        grace.costs(reports, [SIX_HOURS, 2 * SIX_HOURS]),
        SIX_HOURS,
    )


@OLD_MATPLOTLIB
def test_the_picture_is_a_png(blizzard: pd.DataFrame, right: Run, tmp_path: Path) -> None:
    picture.draw(story(blizzard, right), tmp_path / "departures.png")

    assert (tmp_path / "departures.png").read_bytes().startswith(b"\x89PNG")


@OLD_MATPLOTLIB
def test_the_picture_of_nothing_is_a_png(blizzard: pd.DataFrame, right: Run, tmp_path: Path) -> None:
    nothing = Run(1_000, right.rows.iloc[:0], right.counts, 1.0)
    picture.draw(story(blizzard, nothing), tmp_path / "departures.png")

    assert (tmp_path / "departures.png").stat().st_size > 10_000


def test_what_the_demo_says(blizzard: pd.DataFrame, right: Run) -> None:
    console = Console(file=io.StringIO(), width=200)
    costs = grace.costs(blizzard, [SIX_HOURS])
    expected = check.directly(blizzard, SIX_HOURS_MS)

    show.show_input(console, blizzard)
    show.show_costs(console, costs, SIX_HOURS, len(blizzard))
    silent = alerts.hours_without_any(blizzard, alerts.timetable(blizzard))
    show.show_results(console, right, blizzard, grace.too_late(blizzard, SIX_HOURS), silent)
    show.show_open(console, expected)
    show.show_sentence(console, [right, right], costs, SIX_HOURS, len(silent))

    said = " ".join(console.file.getvalue().split())
    assert f"{len(blizzard):,} reports, {expected.bad_timestamps:,} without a departure" in said
    assert f"{sum(expected.late.values()):,} too late for their window, {len(expected.final):,} windows final" in said
    assert f"Windows still open when the reports ended: {len(expected.still_open):,}." in said
    assert "The rows are identical in batches of 1,000 (2 batches, 1 s) and 1,000 (2 batches, 1 s)." in said
    assert f"{len(silent)} hours with 10 or more departures scheduled had none" in said


@OLD_MATPLOTLIB
@pytest.mark.parametrize(("lost", "code", "said"), [([], 0, "The rows are identical"), ([3], 1, "did not come out")])
def test_a_wrong_result_fails_the_demo(
    blizzard: pd.DataFrame,
    right: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: list[int],
    code: int,
    said: str,
) -> None:
    spoilt_run = Run(701, right.rows.drop(lost), right.counts, 1.0)
    monkeypatch.setattr(demo.flights, "reports", lambda _flights: blizzard)
    monkeypatch.setattr(demo, "_replay", lambda *_: [right, spoilt_run])
    console = Console(file=io.StringIO(), width=200)

    assert demo.run(demo.Options(output=tmp_path), console) == code
    assert said in console.file.getvalue()
    assert ("every result checked" in console.file.getvalue()) == (code == 0)


def test_problems_are_said() -> None:
    console = Console(file=io.StringIO(), width=200)
    show.show_problems(console, ["JFK 2013-02-08 12:00 UTC came out twice"])

    assert "not what they must be" in console.file.getvalue()
    assert "came out twice" in console.file.getvalue()


# --- command line -------------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tidegate {tg.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch-size", "10"], "--batch-size is 10"),
        (["--grace", "soon"], "`grace`"),
        (["--grace", "-1 hour"], "`grace`"),
    ],
)
def test_wrong_options_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], said: str
) -> None:
    output = tmp_path / "output"

    assert main(["demo", "--output", str(output), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("below", ["", "folder"])
def test_an_output_that_can_be_no_folder(tmp_path: Path, below: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / below
    assert main(["demo", "--output", str(output)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tidegate: --output is {str(output)!r}, where no folder can be made: ")
    assert "Traceback" not in said


def test_what_is_not_installed_is_named_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name in {"rich", "matplotlib"} else name)

    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "tidegate: the demo needs rich, matplotlib. Run: pip install 'tidegate[demo]'\n"


def test_the_page_opens_and_ends_with_the_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    said, opened, closed = io.StringIO(), [], []
    endpoint = SimpleNamespace(page="http://127.0.0.1:1/", close=lambda: closed.append(True))
    monkeypatch.setattr(tg.metrics, "serve", lambda _spark, port: endpoint)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with demo._watched(None, Console(file=said)):
        assert (opened, closed) == ([endpoint.page], [])
    assert closed == [True]
    assert said.getvalue() == "Watch: http://127.0.0.1:1/\n"
