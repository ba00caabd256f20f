"""Interprets words that people type: spelling suggestions, yes and no."""

from collections.abc import Iterable

TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off")


def parse_bool(text: str) -> bool | None:
    """``True`` or ``False`` for one of their words, in any case; ``None`` for any other text.

    >>> parse_bool("Yes"), parse_bool("off"), parse_bool("maybe")
    (True, False, None)
    """
    word = text.lower()
    if word in TRUE_WORDS:
        return True
    return False if word in FALSE_WORDS else None


def closest(word: str, choices: Iterable[str]) -> str | None:
    """Returns the choice most similar to the word, ignoring case; ``None`` if none is similar.

    Choices one edit away win: two letters swapped, or one missing, added or wrong. Otherwise the
    choice that shares most letters wins.

    >>> closest("utils.ehco", ["utils.hco", "utils.echo"])
    'utils.echo'
    >>> closest("num_replcs", ["num_replicas", "min_replicas"])
    'num_replicas'
    """
    lower = word.lower()
    by_lower = {choice.lower(): choice for choice in choices}
    near = [choice for choice in by_lower if _one_edit(lower, choice)]
    if not near:
        import difflib  # takes 4 ms, and most commands suggest nothing

        near = difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.6)
    if not near:
        return None
    letters = sorted(lower)
    return by_lower[min(near, key=lambda choice: sorted(choice) != letters)]


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Returns a sentence to append to an error, with a leading space; empty if none is similar."""
    found = closest(word, choices)
    return f" Did you mean `{found}`?" if found else ""


_SHORTEST = 3
"""Least length of a word for which one edit is a meaningful difference."""


def _one_edit(word: str, other: str) -> bool:
    """Returns True if one edit turns one word into the other.

    >>> _one_edit("ehco", "echo"), _one_edit("eco", "echo"), _one_edit("ceho", "echo")
    (True, True, True)
    >>> _one_edit("oche", "echo")
    False
    """
    if abs(len(word) - len(other)) > 1 or max(len(word), len(other)) < _SHORTEST:
        return False
    shorter = min(len(word), len(other))
    start = 0
    while start < shorter and word[start] == other[start]:
        start += 1
    end = 0
    while end < shorter - start and word[-1 - end] == other[-1 - end]:
        end += 1
    rest, other_rest = word[start : len(word) - end], other[start : len(other) - end]
    if len(rest) <= 1 and len(other_rest) <= 1:
        return True
    return len(rest) == 2 and rest == other_rest[::-1]
