"""The page of `tidegate watch` in a real browser: `make test-browser`. Pictures go to the folder of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from browser.chromium import PROGRAM, Page
from cli.fed import HOSTILE, NOW, heard, of_sessions, progress, served
from tidegate.runtime.spark.metrics.listener import Listener

pytestmark = [pytest.mark.browser, pytest.mark.skipif(PROGRAM is None, reason="no chromium is installed")]

DRAWN = "document.querySelectorAll('.plot canvas').length >= 8"
UPDATES = 300


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(tmp_path_factory.mktemp("chromium"))
    yield page
    page.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(heard()) as url:
        yield url


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_draws_within_its_width_and_asks_nobody_else(
    page: Page, url: str, tmp_path: Path, dark: bool, width: int
) -> None:
    page.requests.clear()
    page.open(url, width, dark=dark)
    page.wait(DRAWN)
    page.picture(tmp_path / "watch.png")
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.errors == []
    assert page.requests
    assert [one for one in page.requests if not one.startswith((url, "data:,"))] == []
    shade = page.value("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
    # Each picture has a text that describes it.
    assert page.value("[...document.querySelectorAll('svg,.chart[role=img]')].every((p) => p.ariaLabel.length > 20)")


def test_what_it_says(page: Page, url: str) -> None:
    page.open(url)
    page.wait(DRAWN)
    text = page.value("document.body.innerText")
    for said in (
        "windows of 10 min, one every 5 min, grace 1 min",
        "2 minutes 45 seconds to go",
        "open windows",
        "stream time",
    ):
        assert said in text
    assert page.value("document.querySelector('tbody tr').innerText").split("\t")[0] == "5"
    assert "idle 8 min 25 s" in page.value("document.querySelector('tbody tr').innerText")
    assert page.value("document.querySelectorAll('svg .bar.late').length") >= 1
    assert page.value("document.querySelectorAll('svg .window').length") == 1
    assert page.value("document.querySelectorAll('svg .guess').length") == 2


def test_it_says_what_it_knows_of_sessions(page: Page) -> None:
    listener = Listener(clock=lambda: NOW)
    listener.onQueryProgress(of_sessions())
    with served(listener) as url:
        page.open(url)
        page.wait("document.querySelectorAll('svg .bar').length > 2")
        text = page.value("document.body.innerText")
        assert page.errors == []
    for said in (
        "sessions, grace 25 s",
        "Which grace records needed at most, last 24 hours",
        "1 min would have left at most 0.1 % late",
        "a session that is open takes records that are too old by themselves",
    ):
        assert said in text
    assert page.value("document.querySelectorAll('svg .window').length") == 0


def test_another_query_whose_name_is_no_markup(page: Page, url: str) -> None:
    page.open(url)
    page.wait(DRAWN)
    assert page.value("document.querySelector('nav').innerText").split("\n") == ["alerts", HOSTILE]
    page.value("document.querySelectorAll('nav button')[1].click()")
    page.wait(DRAWN)
    assert page.value("document.querySelector('nav button[aria-pressed=true]').innerText") == HOSTILE
    assert page.value("document.querySelectorAll('nav img').length") == 0
    assert page.value("decodeURIComponent(location.hash.slice(1))") == HOSTILE


def test_it_draws_times_and_names_of_any_kind(page: Page) -> None:
    """A time that no calendar has, an operator with the name of a part of the page, and an address that is no name."""
    listener = Listener(clock=lambda: NOW)
    for reached in (9_000_000_000_000_000, 9_100_000_000_000_000):
        listener.onQueryProgress(progress("100 %", "batches", stream_time=reached))
    with served(listener) as url:
        page.open(f"{url}/#%")
        page.wait("document.querySelectorAll('.plot canvas').length >= 7")
        assert page.errors == []
        assert page.value("document.getElementById('state').className") == ""
        text = page.value("document.body.innerText")
    for said in ("9100000000000000 ms", "Stream time against the wall clock", "Time per batch, and where it goes"):
        assert said in text


def test_the_keyboard_stays_where_it_is(page: Page, url: str) -> None:
    page.open(url)
    page.wait(DRAWN)
    page.value("document.querySelectorAll('nav button')[1].focus()")
    page.value("update()")
    assert page.value("document.activeElement.innerText") == HOSTILE
    page.value("document.activeElement.click()")
    assert page.value("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_it_stays_as_large_while_it_is_open(page: Page, url: str) -> None:
    page.open(url)
    page.wait(DRAWN)

    def size() -> tuple[int, int]:
        page.value(f"(() => {{ for (let i = 0; i < {UPDATES}; i++) update(); }})()")
        page.call("HeapProfiler.collectGarbage")
        return page.value("document.querySelectorAll('*').length"), page.call("Runtime.getHeapUsage")["usedSize"]

    size()
    (nodes, before), (nodes_then, after) = size(), size()
    assert nodes == nodes_then
    assert after < before + (1 << 20)


def test_it_says_that_nobody_answers_any_more(page: Page) -> None:
    with served(heard(20)) as url:
        page.open(url)
        page.wait(DRAWN)
    page.wait("document.getElementById('state').className === 'lost'")
    assert "the process has ended" in page.value("document.getElementById('state').innerText")
    assert page.value(DRAWN)
    page.errors.clear()
