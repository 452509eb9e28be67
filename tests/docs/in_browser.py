"""The built site in Chromium (`make test-site`): every page opens, the search finds, and nothing is fetched elsewhere.

The name of this file keeps it out of `make test`, which needs neither a browser nor the site.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright
from tools.site.staging import SITE

PAGES = sorted(path.parent.relative_to(SITE).as_posix() for path in SITE.rglob("index.html"))
WANTED = {
    "watermark": "howto/from-watermark/#watermark-and-delay-threshold",
    "output mode": "howto/from-watermark/#output-mode-append",
    "append": "howto/from-watermark/#output-mode-append",
    "complete": "howto/from-watermark/#output-mode-complete",
    "trigger": "howto/from-watermark/#trigger",
    "late data": "howto/from-watermark/#late-data",
    "idle partition": "howto/from-watermark/#an-idle-partition",
    "sessionization": "howto/from-watermark/#session_window-sessionization",
    "deduplicate": "howto/from-watermark/#dropduplicateswithinwatermark-deduplicate",
    "alert": "howto/cookbook/#a-dead-mans-alert-for-silent-devices",
    "session_window": "howto/from-watermark/#session_window-sessionization",
    "transformWithState": "howto/from-watermark/#transformwithstate",
}
"""Words that a reader types, each with a place that must be among the first results."""

WALK = {
    "why does nothing come out": "howto/questions/#why-does-nothing-come-out-the-last-window-is-never-emitted",
    "last window never emitted": "howto/questions/#why-does-nothing-come-out-the-last-window-is-never-emitted",
    "is late data dropped": "howto/questions/#what-happens-to-late-data-is-it-dropped",
    "how long should the watermark delay be": "howto/questions/#how-long-should-the-watermark-delay-be",
    "exactly once foreachBatch": "howto/questions/#how-do-i-write-exactly-once-with-foreachbatch-to-delta-or-postgres",
    "alert when no event arrives": "howto/questions/#how-do-i-raise-an-alert-when-no-event-arrives",
    "change query keep checkpoint": "howto/questions/#how-do-i-change-a-query-and-keep-its-checkpoint",
    "different number of shuffle partitions": "howto/questions/#how-do-i-change-the-number-of-shuffle-partitions",
    "debug state store": "howto/questions/#how-do-i-debug-the-state-store-can-i-read-its-state",
    "unit test streaming query": "howto/questions/#how-do-i-unit-test-a-streaming-query",
}
"""Questions of someone who knows PySpark, each with the place that answers the question."""

FIRST = 3
SEEN_ON_A_PHONE = 390

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The site on a free port of loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A page that records its faults."""

    def __init__(self, browser: Browser, address: str, **look: Any) -> None:
        self.context = browser.new_context(**look)
        self.page: Page = self.context.new_page()
        self.address = address
        self.faults: list[str] = []
        self.page.on("console", lambda said: self.note(said.type, said.text))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("response", lambda got: self.note("error" if got.status >= 400 else "", f"{got.status} {got.url}"))
        self.page.on("request", lambda asked: self.asked(asked.url))

    def note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def asked(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"asked another host: {url}")

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page


@pytest.fixture(scope="session")
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    page = Watched(browser, address)
    yield page
    page.context.close()


def test_there_is_a_site() -> None:
    assert len(PAGES) > 50, "make site builds it"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens(watched: Watched, path: str) -> None:
    """No message in the console, a heading, texts for pictures, and contrast by day and by night.

    On a phone, wide parts scroll in boxes of their own.
    """
    watched.faults.clear()
    watched.page.set_viewport_size({"width": 1280, "height": 900})
    watched.page.emulate_media(color_scheme="light")
    page = watched.open("" if path == "." else f"{path}/")
    assert page.locator("h1").count() == 1
    assert page.locator("img:not([alt]), img[alt='']").count() == 0
    broken = page.evaluate("[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)")
    assert broken == []
    for scheme, name in (("light", "default"), ("dark", "slate")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"[data-md-color-scheme={name}]")
        assert page.evaluate(CONTRAST) == [], scheme
    page.set_viewport_size({"width": SEEN_ON_A_PHONE, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= SEEN_ON_A_PHONE
    assert watched.faults == []


@pytest.mark.parametrize("words", WANTED)
def test_the_search_finds(browser: Browser, address: str, words: str) -> None:
    found = search(browser, address, words)
    assert WANTED[words] in found[:FIRST], found


@pytest.mark.parametrize("words", WALK)
def test_a_question_is_two_clicks_from_its_answer(browser: Browser, address: str, words: str) -> None:
    """One click opens the search, another one a result in sight, and the heading that answers stands on the screen."""
    seen = Watched(browser, address, viewport={"width": 1280, "height": 900})
    page = seen.open("")
    results = typed(page, words)
    places = [place(href, address) for href in results.evaluate_all("all => all.map(one => one.href)")]
    assert WALK[words] in places[:FIRST], places
    results.nth(places.index(WALK[words])).click()
    path, _, anchor = WALK[words].partition("#")
    page.wait_for_url(lambda url: place(url, address).partition("#")[0] == path)
    heading = page.locator(f"[id='{anchor}']" if anchor else "h1")
    heading.wait_for()
    page.wait_for_function(
        "one => { const y = one.getBoundingClientRect().y; return 0 <= y && y < 900; }", arg=heading.element_handle()
    )
    seen.context.close()
    assert seen.faults == []


def search(browser: Browser, address: str, words: str) -> list[str]:
    """The places that the search of the site lists, in their order."""
    seen = Watched(browser, address, viewport={"width": 1280, "height": 900})
    hrefs = typed(seen.open(""), words).evaluate_all("all => all.map(one => one.href)")
    seen.context.close()
    assert seen.faults == []
    return [place(href, address) for href in hrefs]


def typed(page: Page, words: str) -> Locator:
    """The results of the search for these words."""
    page.get_by_role("button", name="Search").first.click()
    page.locator("input:visible").last.fill(words)
    page.get_by_text("results").first.wait_for()
    links = page.locator("a[href*='h=']")
    links.first.wait_for()
    return links


def place(href: str, address: str) -> str:
    """The page and the heading of a result, without the words that are marked there."""
    return re.sub(r"\?h=[^#]*", "", href).removeprefix(address)


def test_the_types_of_a_signature_are_links(watched: Watched) -> None:
    page = watched.open("reference/streams/")
    links = page.locator(".doc-signature a.autorefs")
    assert {"KTable", "KStream", "JoinWindows"} <= set(links.all_inner_texts())
    lines = page.locator(".doc-signature code").first.inner_text().splitlines()
    assert "    timestamp: str," in lines


def test_the_playground_shows_what_leaves(browser: Browser, address: str) -> None:
    seen = Watched(browser, address, viewport={"width": 1280, "height": 900})
    page = seen.open("playground/")
    page.get_by_role("button", name="All records").click()
    last = page.locator("#play tr.now")
    page.locator("select[name=grace]").select_option("0")
    assert "leaves with" in last.inner_text()
    assert page.locator("#play td", has_text="Late: window").count() > 0
    page.locator("select[name=suppression]").select_option("0")
    assert "every update leaves" in page.locator("#play tbody").inner_text()
    seen.context.close()
    assert seen.faults == []
