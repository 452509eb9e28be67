"""A few shapes as SVG text: the same text with any fonts and libraries."""

from __future__ import annotations

from html import escape

FONT = "font-family=\"'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\""


class Drawing:
    """Shapes in the order of drawing; `text()` returns the file."""

    def __init__(self, width: float, title: str) -> None:
        self.width = width
        self.title = title
        self.shapes: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none", **more: str
    ) -> None:
        """Draw a rectangle; `more`: further attributes, such as `rx="3"` or `dash="4 3"`."""
        look = f'fill="{fill}" stroke="{edge}"' + _attributes(more)
        self.shapes.append(f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" {look}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str, **more: str) -> None:
        ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        self.shapes.append(f'<line {ends} stroke="{color}"{_attributes(more)}/>')

    def circle(self, x: float, y: float, r: float, *, fill: str, edge: str = "none", **more: str) -> None:
        look = f'fill="{fill}" stroke="{edge}"' + _attributes(more)
        self.shapes.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(r)}" {look}/>')

    def polygon(self, points: list[tuple[float, float]], fill: str) -> None:
        listed = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self.shapes.append(f'<polygon points="{listed}" fill="{fill}"/>')

    def write(self, x: float, y: float, text: str, *, size: float = 13, color: str = "#24292f", **more: str) -> None:
        """Draw text with its baseline at y; `anchor`: start, middle or end."""
        anchor = more.pop("anchor", "start")
        look = f'font-size="{_n(size)}" fill="{color}" text-anchor="{anchor}"' + _attributes(more)
        self.shapes.append(f'<text x="{_n(x)}" y="{_n(y)}" {look}>{escape(text, quote=False)}</text>')

    def text(self, height: float) -> str:
        """The text of the file, `height` pixels high."""
        size = f'width="{_n(self.width)}" height="{_n(height)}" viewBox="0 0 {_n(self.width)} {_n(height)}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {FONT}>\n<title>{escape(self.title)}</title>\n'
        )
        paper = f'<rect width="{_n(self.width)}" height="{_n(height)}" rx="6" fill="#ffffff"/>\n'
        return head + paper + "\n".join(self.shapes) + "\n</svg>\n"


_NAMES = {"dash": "stroke-dasharray", "thick": "stroke-width", "weight": "font-weight", "style": "font-style"}


def _attributes(more: dict[str, str]) -> str:
    return "".join(f' {_NAMES.get(name, name)}="{value}"' for name, value in more.items())


def _n(value: float) -> str:
    """The text of a number, rounded to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
