"""The name someone probably meant."""

from collections.abc import Iterable


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most like the word; `None` when nothing comes near."""
    import difflib

    by_lower = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A sentence to put behind an error, with a space in front; empty when nothing comes near."""
    found = closest(word, choices)
    return f" Did you mean `{found}`?" if found else ""
