"""Write the generated files of docs/: `python -m tools.pages`."""

from __future__ import annotations

from tools.pages import ROOT
from tools.pages.made import FILES


def main() -> None:
    for path, make in FILES.items():
        text = make()
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"{'made' if old is None else 'changed'} {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
