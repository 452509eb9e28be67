"""The samples of a soak as a picture: each series over time, judged samples dark, restarts as lines."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from soak.soak import WATCHED, Soak, Verdict

DARK, LIGHT, RESTART, BAD = "#1f5f8b", "#a9c7dc", "#bbbbbb", "#b3261e"


def draw(soak: Soak, verdict: Verdict, path: Path) -> None:
    figure = Figure(figsize=(13, 14), dpi=100, layout="constrained")
    axes = figure.subplots(len(WATCHED) // 2, 2, sharex=True).ravel()
    began = soak.starts[0]
    for axis, (name, (title, unit, _, scale)), series in zip(axes, WATCHED.items(), verdict.series, strict=True):
        every = [((at - began) / 60, value / scale) for at, value in soak.samples[name]]
        axis.plot(*zip(*every, strict=True), ".", ms=3, color=LIGHT)
        judged = [((at - began) / 60, value) for life in series.lives for at, value in life]
        if judged:
            axis.plot(*zip(*judged, strict=True), ".", ms=3, color=DARK)
        for start in soak.starts[1:]:
            axis.axvline((start - began) / 60, color=RESTART, lw=0.8)
        growth, flat = series.growth(verdict.seconds), series.flat(verdict.seconds)
        said = "too few samples" if growth is None else f"{growth:+.1%} over the run"
        axis.set_title(f"{title}\n{said}", loc="left", fontsize="medium", color=DARK if flat else BAD)
        axis.set_ylabel(unit)
        axis.set_ylim(0)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-2:]:
        axis.set_xlabel("minutes (lines: kill -9 and a restart)")
    figure.suptitle(str(verdict).splitlines()[-2], x=0.01, ha="left", fontsize="medium")
    figure.savefig(path, metadata={"Software": None})
