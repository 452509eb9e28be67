"""Writes the address of the project into a release: URLs of the package, and links that work on the index.

    python -m tools.address https://host/owner/name v0.1.0

The repository itself has no address in it, so that a fork releases under its own. The index shows only README.md: there
a relative link leads nowhere, so it becomes a link to the file at the tag. pyproject.toml and README.md are changed in
place.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "Homepage": "",
    "Documentation": "/tree/{tag}/docs",
    "Changelog": "/blob/{tag}/CHANGELOG.md",
    "Issues": "/issues",
    "Source": "/tree/{tag}",
}
_BEFORE = "[project.optional-dependencies]\n"
_LINK = re.compile(r"\]\((?![a-z+]+:|#)([^)\s]+)\)")
_ADDRESS = re.compile(r"https://[^\s/]+/[^\s/]+/[^\s/]+")


def with_urls(pyproject: str, address: str, tag: str) -> str:
    """pyproject.toml with the URLs of the project. Raises ValueError if it has URLs, or no single place for them."""
    if "[project.urls]" in pyproject or pyproject.count(_BEFORE) != 1:
        raise ValueError(f"pyproject.toml has URLs already, or no single {_BEFORE.strip()} to put them before.")
    lines = [f'{name} = "{address}{page.format(tag=tag)}"\n' for name, page in PAGES.items()]
    return pyproject.replace(_BEFORE, "".join(["[project.urls]\n", *lines, "\n", _BEFORE]))


def with_absolute_links(readme: str, address: str, tag: str) -> str:
    """The README; links to files of the repository become links to the files at the tag."""
    return _LINK.sub(lambda link: f"]({address}/blob/{tag}/{link[1]})", readme)


def main(address: str, tag: str) -> int:
    """Rewrite pyproject.toml and README.md; returns the exit status."""
    address = address.rstrip("/")
    if not _ADDRESS.fullmatch(address) or not re.fullmatch(r"v\d+\.\d+\.\d+\S*", tag):
        print(f"{address} {tag}: give the address of a repository and a tag, https://host/owner/name v0.1.0")
        return 2
    for name, rewritten in (("pyproject.toml", with_urls), ("README.md", with_absolute_links)):
        path = ROOT / name
        path.write_text(rewritten(path.read_text(encoding="utf-8"), address, tag), encoding="utf-8")
        print(f"{name}: {address} at {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*[*sys.argv[1:], "", ""][:2]))
