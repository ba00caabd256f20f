"""Text that has no newline yet, a prompt or a progress bar, as it comes where that is asked for.

Lines are whole everywhere else, so that none is torn apart by those of another replica.
"""

from contextvars import ContextVar, Token

LONGEST_BYTES = 1 << 16
"""Of a longer line the rest is shown when it ends."""

_wanted: ContextVar[bool] = ContextVar("torchx_unfinished", default=False)


class unfinished_lines:
    """Within this context, who follows a single replica also gets the beginning of a line.

    Args:
        wanted: whether that is so.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._new = wanted

    def __enter__(self) -> None:
        self._token: Token[bool] = _wanted.set(self._new)

    def __exit__(self, *_: object) -> None:
        _wanted.reset(self._token)


def wanted() -> bool:
    """Whether the reader asks for it."""
    return _wanted.get()


class Shown:
    """The beginning of a line that was given already."""

    def __init__(self) -> None:
        self._text = b""

    def more(self, text: bytes) -> bytes:
        """What is new of a line of which so much has come; empty if nothing is."""
        text = whole_characters(text[:LONGEST_BYTES])
        if not text.startswith(self._text) or len(text) == len(self._text):
            return b""
        new = text[len(self._text) :]
        self._text = text
        return new

    def rest(self, data: bytes) -> bytes:
        """What is left of the lines that come next. Others than the one that was begun get a
        line of their own."""
        text, self._text = self._text, b""
        if not text:
            return data
        return data[len(text) :] if data.startswith(text) else b"\n" + data


def whole_characters(data: bytes) -> bytes:
    """The bytes without the beginning of a character of UTF-8 at their end.

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
