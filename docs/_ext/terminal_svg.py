"""What a terminal shows as an SVG, in colours that are read on light and on dark pages."""

import re
from html import escape
from typing import NamedTuple

COLUMN_PX = 8.4
LINE_PX = 18
MARGIN_PX = 14

_STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #24292f; white-space: pre; }
rect { fill: #f6f8fa; stroke: #d0d7de; }
.b { font-weight: 600; } .d { fill: #6e7781; }
.c31, .c91 { fill: #cf222e; } .c32, .c92 { fill: #1a7f37; } .c33, .c93 { fill: #9a6700; }
.c34, .c94 { fill: #0969da; } .c35, .c95 { fill: #8250df; } .c36, .c96 { fill: #1b7c83; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } rect { fill: #161b22; stroke: #30363d; }
.d { fill: #8b949e; }
.c31, .c91 { fill: #ff7b72; } .c32, .c92 { fill: #3fb950; } .c33, .c93 { fill: #d29922; }
.c34, .c94 { fill: #58a6ff; } .c35, .c95 { fill: #bc8cff; } .c36, .c96 { fill: #39c5cf; }
}
"""  # noqa: E501  a style sheet
_ESCAPE = re.compile(r"\033\[([0-9;:]*)([A-Za-z])")


class Span(NamedTuple):
    """Text of one look."""

    text: str
    classes: tuple[str, ...] = ()


def screen(raw: str) -> list[list[Span]]:
    """The lines that stay on the terminal, of what was written to it."""
    return [_spans(_last_written(line)) for line in raw.replace("\r\n", "\n").split("\n")]


def _last_written(line: str) -> str:
    """What is left of a line that was written several times."""
    kept = line
    for part in line.split("\r"):
        kept = part[len("\033[K") :] if part.startswith("\033[K") else (part or kept)
    return kept


def _spans(line: str) -> list[Span]:
    spans: list[Span] = []
    classes: tuple[str, ...] = ()
    at = 0
    for found in _ESCAPE.finditer(line):
        if found.start() > at:
            spans.append(Span(line[at : found.start()], classes))
        at = found.end()
        if found[2] == "m":
            classes = _classes(found[1], classes)
    if at < len(line):
        spans.append(Span(line[at:], classes))
    return spans


def _classes(codes: str, before: tuple[str, ...]) -> tuple[str, ...]:
    for code in codes.split(";"):
        if code in ("", "0"):
            before = ()
        elif code in ("1", "2"):
            before = (*before, "b" if code == "1" else "d")
        else:
            before = (*before, f"c{code}")
    return before


def to_svg(raw: str, title: str, columns: int = 80) -> str:
    """The picture of a terminal, as wide as it is and as high as what is on it."""
    lines = screen(raw.rstrip("\n"))
    columns = max([columns, *(sum(len(span.text) for span in line) for line in lines)])
    width = round(columns * COLUMN_PX + 2 * MARGIN_PX)
    height = len(lines) * LINE_PX + 2 * MARGIN_PX
    rows = [_row(line, at) for at, line in enumerate(lines)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" xml:space="preserve" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>\n'
        + "".join(rows)
        + "</svg>\n"
    )


def _row(line: list[Span], at: int) -> str:
    y = MARGIN_PX + (at + 0.75) * LINE_PX
    x = float(MARGIN_PX)
    parts = []
    for span in line:
        names = f' class="{" ".join(span.classes)}"' if span.classes else ""
        width = len(span.text) * COLUMN_PX
        parts.append(
            f'<tspan x="{x:.1f}" textLength="{width:.1f}"{names}>{escape(span.text)}</tspan>'
        )
        x += width
    return f'<text y="{y:.1f}">{"".join(parts)}</text>\n' if parts else ""
