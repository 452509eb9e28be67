"""Checks of the site without building it: navigation, links, alternative texts; and each fault is found."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tools.site import check, staging

from docs.pages import ROOT


def test_the_navigation_has_every_page_once() -> None:
    assert staging.problems() == []


def test_a_page_outside_the_navigation_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "zensical.toml").write_text('[project]\nnav = [{ "A" = ["index.md", "index.md", "gone.md"] }]\n')
    monkeypatch.setattr(staging, "CONFIG", tmp_path / "zensical.toml")
    found = staging.problems()
    assert "semantics.md is not in the navigation: add it to `nav` in zensical.toml" in found
    assert "gone.md is in the navigation of zensical.toml, and is no page" in found
    assert "index.md is in the navigation twice" in found


def test_two_pages_of_one_address_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two such pages stop the builder, and `make check` does not run the builder."""
    there = staging.pages()
    monkeypatch.setattr(staging, "pages", lambda: [*there, "notebooks.md"])
    assert "notebooks/README.md and notebooks.md have the same address: rename one" in staging.problems()


def test_a_folder_of_the_navigation_is_its_pages() -> None:
    named = staging.in_navigation()
    assert "decisions/0001-chunks-and-scattered-partitions.md" in named
    assert "examples/example_to_beat.md" in named


@pytest.mark.parametrize("there", staging.pages())
def test_links_are_pages_of_the_site(there: str) -> None:
    """Every link of a page is rewritten, so that it leads to a page that the site has, and every picture has a text."""
    text = staging.text_of(there, staging.sources()[there])
    assert re.search(r"^# .+", text, re.MULTILINE), "a page begins with a heading"
    pictures = re.findall(r"!\[([^\]]*)\]\(", text) + re.findall(r"<img(?![^>]*\balt=\"[^\"]+\")", text)
    assert all(alt.strip() for alt in pictures)


def test_links_out_of_docs_are_rewritten() -> None:
    page = staging.text_of("versioning.md", ROOT / "docs" / "versioning.md")
    assert "](overview.md#versions)" in page
    recipes = staging.text_of("joins/recipes.md", ROOT / "docs" / "joins" / "recipes.md")
    assert "](../examples/departures_and_weather.md)" in recipes


def test_a_link_to_no_page_stops_the_site(tmp_path: Path) -> None:
    page = staging.ROOT / "docs" / "gone.md"
    with pytest.raises(staging.BrokenLinkError, match=r"links to nowhere\.md"):
        staging._linked(staging._LINK.search("see [it](nowhere.md)"), "gone.md", page)  # type: ignore[arg-type]


def test_nothing_is_fetched_from_another_host_by_the_configuration() -> None:
    theme = tomllib.loads(staging.CONFIG.read_text())["project"]["theme"]
    assert theme["font"] is False


def test_the_check_of_a_built_site_finds_each_fault(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="a/#there">good</a><a href="#top">good</a><a href="a/#gone">bad</a>'
        '<a href="b/">bad</a><a href="https://spark.apache.org">good</a><img src="a/p.svg"><img src="q.svg" alt="q">'
        '<script src="https://cdn.example/x.js"></script><link rel="canonical" href="https://tidegate.example/">'
    )
    (tmp_path / "a" / "index.html").write_text('<p id="there"><a href="..">good</a>')
    (tmp_path / "a" / "p.svg").write_text("<svg/>")
    (tmp_path / "site.css").write_text('@import "https://fonts.example/f.css";')

    assert check.problems(tmp_path) == [
        "index.html: the picture a/p.svg has no alternative text",
        "index.html: fetches https://cdn.example/x.js from another host",
        "index.html: a/#gone leads to no anchor",
        "index.html: b/ leads to no file",
        "index.html: q.svg leads to no file",
        "site.css: fetches a file of another host",
    ]
