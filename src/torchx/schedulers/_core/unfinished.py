"""Shows text without a newline yet, such as prompts and progress bars, if requested.

By default lines are whole, so that they do not mix with those of other replicas.
"""

from contextvars import ContextVar, Token

LONGEST_BYTES = 1 << 16
"""The rest of a longer line is shown when it ends."""

_wanted: ContextVar[bool] = ContextVar("torchx_unfinished", default=False)


class unfinished_lines:
    """Within this context, following a single replica also yields the start of a line.

    Args:
        wanted: whether to do that.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._new = wanted

    def __enter__(self) -> None:
        self._token: Token[bool] = _wanted.set(self._new)

    def __exit__(self, *_: object) -> None:
        _wanted.reset(self._token)


def wanted() -> bool:
    """Returns True if the reader requested it."""
    return _wanted.get()


class Shown:
    """The start of a line that was already shown."""

    def __init__(self) -> None:
        self._text = b""

    def more(self, text: bytes) -> bytes:
        """Returns the new part of a line's current text; empty if there is none."""
        text = whole_characters(text[:LONGEST_BYTES])
        if not text.startswith(self._text) or len(text) == len(self._text):
            return b""
        new = text[len(self._text) :]
        self._text = text
        return new

    def rest(self, data: bytes) -> bytes:
        """Returns the part of the next lines that was not shown; other lines start on a new one."""
        text, self._text = self._text, b""
        if not text:
            return data
        return data[len(text) :] if data.startswith(text) else b"\n" + data


def whole_characters(data: bytes) -> bytes:
    """Returns the bytes without an incomplete UTF-8 character at the end.

    >>> whole_characters("aé".encode()[:-1])
    b'a'
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data
