"""The pages of the site in one folder: README.md and its neighbours, docs/, and a page for each example."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.pages.notebooks import as_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"

BESIDE_DOCS = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE": "license.md",
}
"""Files outside docs/ that are pages, and their names on the site."""

_FENCE = re.compile(r"^(`{3,})\w*.*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_GLOB = re.compile(r'"([\w-]+)/\*"')


class BrokenLinkError(Exception):
    """A page has a link to a file that is not a page of the site."""


def sources() -> dict[str, Path]:
    """The source file in the repository of every file of the site, by its path on the site."""
    found = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*") if path.is_file()}
    found |= {there: ROOT / here for here, there in BESIDE_DOCS.items()}
    found |= {f"examples/{path.stem}.md": path for path in (ROOT / "examples").glob("*.py")}
    notebooks = {path for path in found.values() if path.suffix == ".ipynb"}
    found |= {f"notebooks/{path.stem}.md": path for path in notebooks}
    kept = {there: path for there, path in found.items() if Path(there).suffix not in (".toml", ".ipynb", ".py")}
    return dict(sorted(kept.items()))


def pages() -> list[str]:
    """The paths of all pages on the site."""
    return [there for there in sources() if there.endswith(".md")]


def text_of(there: str, source: Path) -> str:
    """The Markdown of a page, with links that work on the site."""
    if source.suffix == ".ipynb":
        return as_page(source)
    whole = source.read_text(encoding="utf-8")
    if source.suffix == ".py":
        return f"# {source.stem.replace('_', ' ').capitalize()}\n\n`examples/{source.name}`\n\n```python\n{whole}```\n"
    if source.name == "LICENSE":
        return f"# License\n\n```text\n{whole}```\n"
    parts = []
    for fenced, part in _parts(whole):
        parts.append(part if fenced else _LINK.sub(lambda match: _linked(match, there, source), part))
    return "".join(parts)


def _parts(whole: str) -> Iterator[tuple[bool, str]]:
    """Yields (whether it is a code block, text) for each part of the text."""
    end = 0
    for fence in _FENCE.finditer(whole):
        yield False, whole[end : fence.start()]
        yield True, fence.group(0)
        end = fence.end()
    yield False, whole[end:]


def _linked(match: re.Match[str], there: str, source: Path) -> str:
    """The link on the site: relative to the page, which may be in another folder than in the repository."""
    picture, label, target = match.groups()
    if "://" in target or target.startswith(("#", "mailto:")):
        return match.group(0)
    path, hash_, anchor = target.partition("#")
    aim = (source.parent / path).resolve()
    if aim.is_dir():
        # A folder of the repository has no page.
        return label
    by_source = {file.resolve(): name for name, file in sources().items()}
    if aim not in by_source:
        raise BrokenLinkError(f"{source.relative_to(ROOT)} links to {target}, which is no page of the site.")
    name = os.path.relpath(by_source[aim], Path(there).parent).replace(os.sep, "/")
    return f"{picture}[{label}]({name}{hash_}{anchor})"


def config() -> str:
    """The configuration with each "folder/*" of the navigation replaced by the pages of that folder."""
    text = CONFIG.read_text(encoding="utf-8")
    named = set(re.findall(r'"([\w./-]+\.md)"', text))

    def expanded(match: re.Match[str]) -> str:
        inside = [page for page in pages() if page.startswith(f"{match.group(1)}/") and page not in named]
        return ", ".join(f'"{page}"' for page in inside)

    return _GLOB.sub(expanded, text)


def stage() -> None:
    """Write build/pages and build/zensical.toml anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for there, source in sources().items():
        path = PAGES / there
        path.parent.mkdir(parents=True, exist_ok=True)
        if there.endswith(".md"):
            path.write_text(text_of(there, source), encoding="utf-8")
        else:
            shutil.copyfile(source, path)
    (BUILD / "zensical.toml").write_text(config(), encoding="utf-8")


def in_navigation() -> list[str]:
    """The pages of the navigation, in order."""

    def flat(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for value in entry.values():
                yield from flat(value)
        elif isinstance(entry, list):
            for value in entry:
                yield from flat(value)

    return list(flat(tomllib.loads(config())["project"]["nav"]))


def address(there: str) -> str:
    """The folder whose index.html a page becomes: `a` for `a.md`, and also for `a/README.md`."""
    path = Path(there)
    folder = path.parent if path.stem in ("index", "README") else path.with_suffix("")
    return folder.as_posix()


def problems() -> list[str]:
    """One line for each page that the navigation lacks or has twice, that does not exist, or that shares an address."""
    named, there = in_navigation(), pages()
    found = [
        f"{page} is not in the navigation: add it to `nav` in zensical.toml" for page in there if page not in named
    ]
    found += [f"{page} is in the navigation of zensical.toml, and is no page" for page in named if page not in there]
    found += [f"{page} is in the navigation twice" for page in sorted(set(named)) if named.count(page) > 1]
    by_address: dict[str, list[str]] = {}
    for page in there:
        by_address.setdefault(address(page), []).append(page)
    found += [
        f"{' and '.join(same)} have the same address: rename one" for same in by_address.values() if len(same) > 1
    ]
    return found
