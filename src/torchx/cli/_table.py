"""Tables that fit a terminal."""

from collections.abc import Sequence

from torchx.cli._look import Look, printed_width

_GAP = "  "
_LEAST = 4
"""Least width of a cell when a table is too wide."""


def fitted(
    look: Look,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    flexible: Sequence[int] = (),
    limit: int | None = None,
) -> list[str]:
    """Returns the lines of a table; empty columns are left out.

    Args:
        flexible: columns that may be cut if the table is too wide, in that order; then columns are
            left out from the right.
        limit: available columns; ``None`` for those of the terminal.
    """
    limit = look.width if limit is None else limit
    used = [i for i in range(len(headers)) if i == 0 or any(row[i] for row in rows)]
    natural = {i: max([len(headers[i]), *(printed_width(row[i]) for row in rows)]) for i in used}
    widths = dict(natural)
    for i in flexible:
        if i in widths:
            widths[i] -= min(max(_total(widths) - limit, 0), max(widths[i] - _LEAST, 0))
    while len(widths) > 1 and _total(widths) > limit:
        widths.pop(max(widths))
    for i in flexible:  # there is room again
        if i in widths:
            widths[i] += min(max(limit - _total(widths), 0), natural[i] - widths[i])
    if _total(widths) > limit:
        widths = dict.fromkeys(widths, limit)
    head = _GAP.join(headers[i].ljust(widths[i]) for i in widths)
    lines = [look.dim(look.cut(head.rstrip(), limit))]
    for row in rows:
        cells = [_cell(look, row[i], widths[i]) for i in widths]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _cell(look: Look, text: str, width: int) -> str:
    shown = printed_width(text)
    if shown > width:
        return look.cut(text, width) if shown == len(text) else text
    return text + " " * (width - shown)
