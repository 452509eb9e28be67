"""Finds faults of the built site: links that lead nowhere, files of other hosts, pictures without a text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
    ("use", "href"),
}
"""Attributes whose file a browser fetches by itself; it also fetches a `link`, except those of `LINKED`."""

LINKED = {"prev", "next", "canonical", "edit", "alternate"}
_URL = re.compile(r"(?:url\(|@import\s+)['\"]?(?:https?:)?//")


@dataclass
class Page(HTMLParser):
    """The anchors, links, files and pictures of one page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    without_text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not LINKED & set(given.get("rel", "").split()):
            self.fetched.append(given.get("href", ""))
        self.fetched += [value for name, value in given.items() if (tag, name) in FETCHED]
        if tag == "img" and not given.get("alt", "").strip():
            self.without_text.append(given.get("src", ""))


def problems(site: Path) -> list[str]:
    """One line for each fault of the site in the folder `site`."""
    read: dict[str, Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        read[path.relative_to(site).as_posix()] = page
    found = [fault for name, page in read.items() if name != "404.html" for fault in _of_page(name, page, read, site)]
    sheets = [path for path in sorted(site.rglob("*.css")) if _URL.search(path.read_text(encoding="utf-8"))]
    return found + [f"{path.relative_to(site)}: fetches a file of another host" for path in sheets]


def _of_page(name: str, page: Page, read: dict[str, Page], site: Path) -> Iterator[str]:
    for picture in page.without_text:
        yield f"{name}: the picture {picture} has no alternative text"
    for target in page.fetched:
        if urlsplit(target).netloc:
            yield f"{name}: fetches {target} from another host"
    for target in [*page.links, *page.fetched]:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        aim = _file(name, unquote(parts.path), site)
        if aim is None:
            yield f"{name}: {target} leads to no file"
        elif parts.fragment and aim in read and unquote(parts.fragment) not in read[aim].anchors:
            yield f"{name}: {target} leads to no anchor"


def _file(name: str, path: str, site: Path) -> str | None:
    """The file of the site at a relative address, or None."""
    if not path:
        return name
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    for candidate in (joined, posixpath.normpath(posixpath.join(joined, "index.html"))):
        if not candidate.startswith("..") and (site / candidate).is_file():
            return candidate
    return None
