"""Writes results into docs/benchmarks.md, between its two marks, and draws pictures of them: `make bench-page`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import page_drawn, page_verdicts, where_drawn
from benchmarks.options import SETTINGS

RESULTS = Path("benchmarks/results")
PAGE = Path("docs/benchmarks.md")
PICTURES = PAGE.parent / page_drawn.FOLDER
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
BARS = "<!-- bars: begin -->", "<!-- bars: end -->"

HEADING = "### "
COMMANDS = ("bench", "bench-peers", "bench-growth", "bench-headers", "bench-where")
"""In the order of the page."""
OF_MAKE = {command: {"settings": list(SETTINGS)} for command in ("make bench", "make bench-peers")}
"""Settings that a command has by default, so that the page need not repeat them."""


def main() -> int:
    """Replace the sections that have new results; the other sections stay."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    measured = list(_measured())
    if not measured:
        print(f"Nothing in {RESULTS}: run make bench first. The pictures are drawn anew.")
    sections = merged(old, measured)
    for of, section in sections.items():
        sections[of] = page_drawn.with_picture(of[-1], section, PICTURES)
    body = "\n\n".join(sections.values())
    PAGE.write_text(with_bars(f"{before}{BEGIN}\n{body}\n{END}{after}", sections), encoding="utf-8")
    (PICTURES / "joins.svg").write_text(joins(sections), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


Name = tuple[int, int, str]
"""The name of a section, which sorts as on the page: its command, the length of its workload's name, its workload."""


def merged(old: str, measured: list[str]) -> dict[Name, str]:
    """The sections of `old`, each with its heading; those of `measured` replace or join them, in order of the page."""
    held = [f"{HEADING}{section.rstrip()}" for section in old.split(HEADING)[1:]]
    sections = {_name(section): section for section in [*held, *measured]}
    return {name: sections[name] for name in sorted(sections)}


def with_bars(text: str, sections: dict[Name, str]) -> str:
    """The page with the verdicts of these sections in its table of bars."""
    begin, end = BARS
    before, rest = text.split(begin)
    table = page_verdicts.table((of[-1], section) for of, section in sections.items())
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def joins(sections: dict[Name, str]) -> str:
    """A picture of the speeds of joins; tables over open entries have pictures of their own."""
    races = (
        (of[-1], section) for of, section in sections.items() if of[-1][:1] == "J" and not page_drawn.points(section)
    )
    found = [each for name, section in races for each in page_drawn.speeds(name, section)]
    return page_drawn.beside_bars("Joins: times as fast as the fastest of the others; a mark is the bar", found)


def _name(section: str) -> Name:
    asked = re.search(r"`make (bench[a-z-]*)", section)
    if asked is None:
        raise ValueError(f"a section of {PAGE} does not say what measured it: {section[:60]!r}")
    workload = re.split("[:\n]", section.removeprefix(HEADING))[0]
    return COMMANDS.index(asked[1]), len(workload), workload


def _measured() -> Iterator[str]:
    yield from _of_workloads("suite", "make bench")
    yield from _of_workloads("peers", "make bench-peers")
    if (report := _read("growth")) is not None:
        yield _growth(report)
    if (report := _read("headers")) is not None:
        yield _headers(report)
    if (report := _read("where")) is not None:
        yield where_drawn.section(report, _machine(report, "make bench-where", "where"), PICTURES)


def _of_workloads(kind: str, command: str) -> Iterator[str]:
    """The sections of the workloads in all reports of a kind; the last report that has a workload gives its table."""
    names = sorted(path.stem for path in RESULTS.glob(f"{kind}*.json"))
    reports = {name: report for name in names if (report := _read(name)) is not None}
    runs: dict[str, dict[str, BySettings]] = {}
    for name, report in reports.items():
        columns = {"as installed": report.get("as_installed", {}), "tuned": report["workloads"]}
        for each in columns["tuned"] | columns["as installed"]:
            runs.setdefault(each, {})[name] = {of: found[each] for of, found in columns.items() if each in found}
    for each, by_report in runs.items():
        *_, (name, measured) = by_report.items()
        report = reports[name]
        day = max(one.get("day", report["day"]) for one in measured.values())
        commit = report["versions"]["commit"]
        alike = {of: run for of, run in by_report.items() if reports[of]["versions"]["commit"] == commit and of != name}
        yield workload(each, measured, _machine(report | {"day": day}, command, name), alike)


def _read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if report.get("settings", {}).get("smoke") or report.get("size") == "smoke":
        return None  # a trial says nothing about speed
    report["day"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    return report


def _machine(report: dict[str, Any], command: str, name: str) -> str:
    of = report["versions"]
    chosen = "".join(
        f" --{key.replace('_', '-')}{_value(value)}"
        for key, value in report.get("settings", {}).items()
        if key in ("full", "smoke", "only", "contestants", "without", "peers", "repeat", "settings")
        and value
        and value != OF_MAKE.get(command, {}).get(key)
    )
    asked = f'{command} BENCH_ARGS="{chosen.strip()}"' if chosen else command
    return (
        f"`{asked}` on {report['day']}: {of['cores']} cores, {of['platform']}, Python {of['python']}, "
        f"Spark {of['spark']}, pyarrow {of['pyarrow']}, {of['java']}; {report['seconds']} s in all "
        f"({name}.json has every run)."
    )


def _value(of: Any) -> str:
    return "" if of is True else f" {' '.join(of) if isinstance(of, list) else of}"


Cells = Sequence[tuple[str, Callable[[dict[str, Any]], str]]]
"""Columns of a table: a title, and the cell of one row."""


BySettings = dict[str, dict[str, Any]]
"""The results of one workload, by settings of Spark."""


def workload(name: str, by_settings: BySettings, how: str, earlier: Mapping[str, BySettings] | None = None) -> str:
    """The section of one workload; speeds with several settings of Spark (`by_settings`) stand side by side.

    `earlier`: results of the workload in other runs of the same commit, by the name of the report; each verdict has the
    numbers of these too.
    """
    several, found = len(by_settings) > 1, list(by_settings.values())[-1]
    rows = {of: _rows(each) for of, each in by_settings.items()}
    speeds, others = _columns(name, found)
    head = [f"{title}, {of}" if several else title for title, _ in speeds for of in rows]
    head += [title for title, _ in others]
    lines = [f"{HEADING}{name}: {found['title']}", "", how, "", _line(["", *head]), "|---" * (len(head) + 1) + "|"]
    for label, one in _rows(found).items():
        speed = [cell(each[label]) if label in each else "" for _, cell in speeds for each in rows.values()]
        lines.append(_line([label, *speed, *(cell(one) for _, cell in others)]))
    verdicts = [
        _bar(bar, f", {of}" if several else "") + _again(bar, of, earlier or {})
        for of, each in by_settings.items()
        for bar in each["bars"]
    ]
    verdicts += [f"* {who}: not measured. {why}" for who, why in found.get("unable", {}).items()]
    agreed = [f"{who}: {what}." for who, what in found["agreement"].items()]
    return "\n".join([*lines, "", *verdicts, "", *agreed]).rstrip()


def _rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Results by the label of their row."""
    if "found" in found:
        return {f"{one['label']}, {one['entries']:,} open": one for one in found["found"]}
    return {one["label"]: one for one in found["contestants"].values()}


def _columns(name: str, found: dict[str, Any]) -> tuple[Cells, Cells]:
    """The columns of speed, and the other columns."""
    if "found" in found:
        return [("seconds a batch", lambda one: f"{median(one['batch_s'][2:] or one['batch_s']):.3f}")], [
            ("largest worker MiB", lambda one: f"{one['worker_mib']:,.0f}"),
            ("JVM MiB", lambda one: f"{one['jvm_mib']:,.0f}"),
        ]
    if name == "W10":
        return [
            ("p50 ms", lambda one: f"{one['p50_ms']:,.0f}"),
            ("p99 ms", lambda one: f"{one['p99_ms']:,.0f}"),
            ("ms a batch", lambda one: f"{one['batch_ms']:,}"),
        ], []
    if name == "START":
        return [("seconds", lambda one: f"{median(one['seconds']):.2f}")], []
    return [("M rows/s", lambda one: f"{one['rows_per_s'] / 1e6:.4f}")], [
        ("in the median batch", _in_median_batch),
        ("largest worker MiB", lambda one: f"{one['peak_worker_mib']:,}"),
        ("all Python MiB", lambda one: f"{one['peak_python_mib']:,}"),
        ("JVM MiB", lambda one: f"{one['peak_jvm_mib']:,}"),
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_median_batch(one: dict[str, Any]) -> str:
    rate = one["rows_per_s_median_batch"]
    return "" if rate is None else f"{rate / 1e6:.4f}"


def _bar(bar: dict[str, Any], settings: str) -> str:
    least, most = bar.get("at_least"), bar.get("at_most")
    good = bar["times"] >= least if least is not None else bar["times"] <= most
    wanted = f"at least {round(least, 2)}" if least is not None else f"at most {most}"
    others = f" {' and '.join(bar['others'])}" if "others" in bar else ""
    verdict = "reached" if good else "**not reached**"
    return f"* {bar['contestant']}{settings}: {bar['times']} times{others}; wanted {wanted}: {verdict}"


def _again(bar: dict[str, Any], settings: str, earlier: Mapping[str, BySettings]) -> str:
    """The numbers of the same bar in other runs; empty if no other run has it."""
    asked = _asked(bar)
    found = [
        f"{one['times']} in {name}.json"
        for name, by_settings in earlier.items()
        for one in by_settings.get(settings, {"bars": ()})["bars"]
        if _asked(one) == asked
    ]
    return f" ({', '.join(found)})" if found else ""


def _asked(bar: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in bar.items() if key != "times"}


def _growth(report: dict[str, Any]) -> str:
    lines = [f"{HEADING}Growth", "", _machine(report, "make bench-growth", "growth"), ""]
    lines += ["Each point is the median of its turns; in brackets the least and the most where they are several.", ""]
    for name, axis in report["axes"].items():
        path = PICTURES / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        rates = {point["value"]: point["rows_per_s"] / 1e6 for point in axis["points"]}
        path.write_text(page_drawn.lines("M rows/s", axis["label"], {"tidegate": rates}), encoding="utf-8")
        points = ", ".join(map(_point, axis["points"]))
        lines += [f"![Rows per second over {axis['label']}](benchmarks/{name}.svg)", "", f"M rows/s: {points}.", ""]
    return "\n".join(lines).rstrip()


def _headers(report: dict[str, Any]) -> str:
    """The section of `benchmarks.headers`: a table, and a picture of the clusters that differ in partitions alone."""
    text = [f"{HEADING}Source partitions and tasks of a large cluster", ""]
    how = "processor seconds of a task in the second of two batches of a million records, and MB of all its blobs"
    first = "The first task reports how late all records were."
    text += [f"`make bench-headers` on {report['day']}, without Spark: {how}. {first}", ""]
    found: page_drawn.Points = {}
    head = ("source partitions", "map tasks", "tasks", "stream time", "a map task", "first task", "another task", "MB")
    text += [_line(head), _line(["---"] * len(head))]
    for one in report["seconds"]:
        dealt = ", records dealt in turns" if one["repartitioned"] else ""
        size = [f"{one['partitions']:,}{dealt}", f"{one['maps']:,}", f"{one['tasks']:,}", f"`{one['clock']}`"]
        text.append(_line([*size, *(f"{one[name]:.3f}" for name in ("map", "first", "other")), f"{one['mb']:,.0f}"]))
        if one["maps"] == one["tasks"] == report["seconds"][0]["tasks"] and not dealt:
            for name in ("first", "other"):
                found.setdefault(f"{name} task, {one['clock']}", {})[one["partitions"]] = one[name]
    picture = page_drawn.lines("Seconds of a task", "source partitions", found)
    (PICTURES / "headers.svg").write_text(picture, encoding="utf-8")
    text += ["", "![Seconds of a task over source partitions](benchmarks/headers.svg)"]
    return "\n".join(text)


def _point(point: dict[str, Any]) -> str:
    rates = [rate / 1e6 for rate in point["turns"]]
    least_and_most = f" ({min(rates):.3f} to {max(rates):.3f})" if len(rates) > 1 else ""
    return f"{point['value']:,}: {point['rows_per_s'] / 1e6:.3f}{least_and_most}"


if __name__ == "__main__":
    raise SystemExit(main())
