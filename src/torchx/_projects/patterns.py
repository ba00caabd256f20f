"""The patterns of ignore files: the documented grammar of ``.dockerignore``.

https://docs.docker.com/build/concepts/context/#dockerignore-files is the grammar: one pattern in a
line, ``*`` and ``?`` stay within a folder, ``**`` is any number of folders. The patterns themselves
are those of Go's ``filepath.Match``.
"""

import posixpath
import re
from collections.abc import Callable

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput

SPECIAL = frozenset("*?[]\\")


@light_dataclass(frozen=True)
class Pattern:
    """A line of an ignore file, normalized, without its ``!``.

    >>> parse("!/a//b/")
    [Pattern(text='a/b', takes_in=True)]
    """

    text: str
    takes_in: bool


def parse(text: str, source: str = "the ignore file") -> list[Pattern]:
    """The patterns of an ignore file, in order.

    Args:
        text: its content.
        source: its name, for messages.

    Raises:
        InvalidInput: for a pattern that is malformed; names the line.
    """
    patterns = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if line.startswith("#") or not line.strip():
            continue
        written = line.strip()
        takes_in = written.startswith("!")
        body = written[takes_in:].strip()
        try:
            pattern = _normalized(body)
            for part in pattern.split("/"):
                to_regex(part)
        except ValueError as err:
            msg = (
                f"line {number} of {source} has the pattern `{written}`: {err}; a `\\` in front"
                " takes a character as it is"
            )
            raise InvalidInput(msg) from None
        if pattern not in (".", ""):
            patterns.append(Pattern(pattern, takes_in))
    return patterns


def literal_pattern(path: str) -> str:
    r"""Returns the line of an ignore file that matches one path and everything below it.

    >>> print(literal_pattern("#a/b[1].pt"))
    \#a/b\[1\].pt
    """
    text = re.sub(r"([*?\[\]\\])", r"\\\1", path)
    return f"\\{text}" if text.startswith(("#", "!")) else text


def _normalized(body: str) -> str:
    if not body:
        msg = "nothing follows the `!`"
        raise ValueError(msg)
    if body[0] == "/":  # a path from the root cannot go above it
        return posixpath.normpath("/" + body.lstrip("/"))[1:]
    return posixpath.normpath(body)


def literal_of(part: str) -> str | None:
    """Returns the only name that a part matches; ``None`` if it matches several."""
    if SPECIAL & {*part}:
        if re.search(r"(?<!\\)(?:\\\\)*[*?\[]", part):
            return None
        return re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL)
    return part


def ending_of(part: str) -> str | None:
    """Returns the text that a part like ``*.pyc`` asks names to end with; ``None`` for others."""
    return part[1:] if part[:1] == "*" and not SPECIAL & {*part[1:]} else None


def part_matcher(part: str) -> Callable[[str], object]:
    literal = literal_of(part)
    if literal is not None:
        return literal.__eq__
    return re.compile(to_regex(part), re.DOTALL).fullmatch


def to_regex(pattern: str) -> str:
    """Returns a regular expression that matches what a pattern matches in full.

    Raises:
        ValueError: if the pattern is malformed.
    """
    if pattern.startswith("**") and not SPECIAL & {*pattern[2:]}:
        rest = pattern[2:]
        return f"(?:.*/)?{re.escape(rest[1:])}" if rest[:1] == "/" else f".*{re.escape(rest)}"
    out = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern[at : at + 1] == "*":
            at += 2 if pattern[at + 1 : at + 2] == "/" else 1
            out.append("(?:.*/)?" if at < len(pattern) else ".*")
        elif char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            at, chars = _chars(pattern, at)
            out.append(chars)
        elif char == "\\":
            if at == len(pattern):
                msg = "nothing follows the `\\`"
                raise ValueError(msg)
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _chars(pattern: str, at: int) -> tuple[int, str]:
    """Parses ``[a-z]`` after the bracket; returns where it ends, and the regular expression."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[str] = []
    while not (ranges and pattern[at : at + 1] == "]"):
        at, low = _one_char(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            at, high = _one_char(pattern, at + 1)
        if low > high:
            msg = f"the range `{low}-{high}` is empty"
            raise ValueError(msg)
        ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    return at + 1, f"(?!/)[{'^' if negated else ''}{''.join(ranges)}]"


def _one_char(pattern: str, at: int) -> tuple[int, str]:
    char = pattern[at : at + 1]
    if char == "\\":
        at += 1
        char = pattern[at : at + 1]
    elif char in ("-", "]"):
        msg = f"`{char}` between `[` and `]` needs a `\\` in front"
        raise ValueError(msg)
    if not char:
        msg = "`[` without `]`"
        raise ValueError(msg)
    return at + 1, char
