"""Ignore files: what their patterns say of each folder and file, for walking a tree.

The last pattern that matches a path or a folder above it decides, and ``!`` includes a path again.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

from torchx._projects.patterns import (
    Pattern,
    ending_of,
    literal_of,
    literal_pattern,
    part_matcher,
    to_regex,
)

DEFAULT_SKIPPED = frozenset({".git", "__pycache__", ".torchx", ".torchxslurmjobdirs"})
"""Names that are left out unless a ``!`` pattern has the very name as one of its parts."""


class Rules:
    """The rules by which something is in the workspace or is left out.

    Args:
        patterns: the lines of the ignore file.
        skip_default: leave out ``DEFAULT_SKIPPED`` and virtual environments.
        file: path of the ignore file, or of the one to write if there is none; for messages.
    """

    def __init__(
        self,
        patterns: Sequence[Pattern],
        *,
        skip_default: bool = True,
        file: str = ".torchxignore",
    ) -> None:
        self.file = file
        self._patterns = patterns
        self._asked = {name for p in patterns if p.takes_in for name in _names_in(p)}
        self._skipped = DEFAULT_SKIPPED - self._asked if skip_default else frozenset()
        self._special = {
            name: _rules_of(name, f"**/{name}", patterns)
            for name in (DEFAULT_SKIPPED & self._asked if skip_default else ())
        }
        self.skips_venvs = skip_default
        self._groups = _groups(patterns)
        self._takes_in = [g.takes_in for g in self._groups]
        general = [g.for_any_folder for g in self._groups]
        self._general = tuple(t for t in reversed(general) if t is not None)
        self._only_general = not any(g.by_depth for g in self._groups)

    def root(self) -> "Scope":
        """The rules that apply in the root of the tree."""
        return self._scope((), -1)

    @property
    def skipped(self) -> frozenset[str]:
        """Names that are never in the workspace, at any depth."""
        return self._skipped

    def of_one_name(self) -> "dict[str, Callable[[str], object]]":
        """The patterns that exclude names in the root, each with its matcher."""
        return {
            p.text: part_matcher(p.text)
            for p in self._patterns
            if not p.takes_in and "/" not in p.text and p.text.strip("*")
        }

    def asks_for(self, path: str) -> bool:
        """Returns True if a ``!`` pattern with the literal name of this file includes it."""
        scope = self._above_asked(path)
        return scope is not None and scope.keeps(posixpath.basename(path))

    def enter_environment(self, path: str) -> "tuple[bool, Scope | None]":
        """Like ``Scope.enter``, for a virtual environment: only ``!`` patterns with its name count.

        Args:
            path: below the root.
        """
        scope = self._above_asked(path)
        return (False, None) if scope is None else scope.enter(posixpath.basename(path))

    def _above_asked(self, path: str) -> "Scope | None":
        """Returns the scope of a path's folder as if only patterns with its name included it."""
        *folders, name = path.split("/")
        if name not in self._asked:
            return None
        return _descend(_rules_of(name, literal_pattern(path), self._patterns), folders)

    def _scope(self, folder: tuple[str, ...], inherited: int) -> "Scope":
        if self._only_general:
            tests = self._general
        else:
            found = (g.tests_in(folder) for g in reversed(self._groups))
            tests = tuple(t for t in found if t is not None)
        if inherited >= 0:
            tests = tuple(t for t in tests if t[0] > inherited)
        return Scope(self, folder, inherited, tests)

    def _kept(self, group: int) -> bool:
        return group < 0 or self._takes_in[group]

    def _takes_in_below(self, folder: tuple[str, ...], after: int) -> bool:
        return any(
            group.may_match_below(folder) for group in self._groups[after + 1 :] if group.takes_in
        )


def _names_in(pattern: Pattern) -> set[str]:
    literals = (literal_of(part) for part in pattern.text.split("/"))
    return {name for name in literals if name is not None}


def _rules_of(name: str, places: str, patterns: Sequence[Pattern]) -> Rules:
    """Returns rules for a name that is excluded by default: only ``!`` patterns with the name
    include it.

    Args:
        places: pattern of the folders where it is excluded.
    """
    own = [p for p in patterns if not p.takes_in or name in _names_in(p)]
    return Rules([Pattern(places, False), *own], skip_default=False)


def _descend(rules: Rules, folders: Iterable[str]) -> "Scope | None":
    """Returns the rules that apply in a folder; ``None`` if nothing in it is kept."""
    scope: Scope | None = rules.root()
    for folder in folders:
        if scope is not None:
            scope = scope.enter(folder)[1]
    return scope


_Test = tuple[
    int,  # the group
    frozenset[str],  # names that match
    tuple[str, ...],  # ends of names that match
    Callable[[str], object] | None,  # matches names
    Callable[[str], object] | None,  # matches paths
]


class Scope:
    """The rules that apply in one folder.

    Patterns that follow each other and have the same effect are a group, and a path is judged by
    the last group that matches it or a folder above it; a number stands for that group.
    """

    __slots__ = ("_folder", "_inherited", "_prefix", "_rules", "_tests")

    def __init__(
        self, rules: Rules, folder: tuple[str, ...], inherited: int, tests: tuple[_Test, ...]
    ) -> None:
        self._rules = rules
        self._folder = folder
        self._inherited = inherited
        self._tests = tests
        self._prefix = "/".join((*folder, ""))

    @property
    def everything_kept(self) -> bool:
        """True if no pattern can exclude anything in the folder itself."""
        rules = self._rules
        return not self._tests and rules._kept(self._inherited) and not rules._special

    def keeps(self, name: str) -> bool:
        """Returns True if an entry of this name in the folder is in the workspace."""
        if name in self._rules._special:
            scope = self._special(name)
            return scope is not None and scope.keeps(name)
        return self._rules._kept(self._group(name))

    def enter(self, name: str) -> tuple[bool, "Scope | None"]:
        """Returns whether a sub-folder is kept, and its scope, ``None`` if it keeps nothing."""
        if name in self._rules._special:
            scope = self._special(name)
            return (False, None) if scope is None else scope.enter(name)
        group = self._group(name)
        kept = self._rules._kept(group)
        below = (*self._folder, name)
        if not kept and not self._rules._takes_in_below(below, group):
            return False, None
        return kept, self._rules._scope(below, group)

    def _special(self, name: str) -> "Scope | None":
        return _descend(self._rules._special[name], self._folder)

    def _group(self, name: str) -> int:
        for group, names, ends, name_matches, path_matches in self._tests:
            if (
                name in names
                or (ends and name.endswith(ends))
                or (name_matches is not None and name_matches(name))
                or (path_matches is not None and path_matches(self._prefix + name))
            ):
                return group
        return self._inherited


class _Parts:
    """A pattern without ``**``: one matcher for each folder, and one for the name."""

    def __init__(self, text: str) -> None:
        self.parts = text.split("/")
        self._folders = [part_matcher(p) for p in self.parts[:-1]]

    def matches_folder(self, folder: tuple[str, ...]) -> bool:
        return all(m(f) for m, f in zip(self._folders, folder, strict=True))


class _Group:
    """Patterns of one effect that follow each other, sorted by how they are tested."""

    def __init__(self, index: int, patterns: Sequence[Pattern]) -> None:
        self.takes_in = patterns[0].takes_in
        self._index = index
        self._texts = [p.text.split("/") for p in patterns]
        self._prefixes = [[part_matcher(p) for p in _before_stars(t)] for t in self._texts]
        self.by_depth: dict[int, list[_Parts]] = {}
        self._names: list[str] = []
        paths: list[str] = []
        for pattern in patterns:
            text = pattern.text
            if "**" not in text:
                parts = _Parts(text)
                self.by_depth.setdefault(len(parts.parts), []).append(parts)
            elif text.startswith("**/") and "/" not in text[3:] and "**" not in text[3:]:
                self._names.append(text[3:])
            else:
                paths.append(to_regex(text))
        self._paths = re.compile("|".join(paths), re.DOTALL).fullmatch if paths else None
        self.for_any_folder = self._test(())

    def tests_in(self, folder: tuple[str, ...]) -> _Test | None:
        here = self.by_depth.get(len(folder) + 1)
        if here is None:
            return self.for_any_folder
        return self._test([p.parts[-1] for p in here if p.matches_folder(folder)])

    def may_match_below(self, folder: tuple[str, ...]) -> bool:
        return any(
            _may_match_below(text, prefix, folder)
            for text, prefix in zip(self._texts, self._prefixes, strict=True)
        )

    def _test(self, more: Iterable[str]) -> _Test | None:
        names, ends, regexes = set(), [], []
        for part in (*self._names, *more):
            literal = literal_of(part)
            if literal is not None:
                names.add(literal)
            elif (end := ending_of(part)) is not None:
                ends.append(end)
            else:
                regexes.append(to_regex(part))
        if not (names or ends or regexes or self._paths):
            return None
        by_name = re.compile("|".join(regexes), re.DOTALL).fullmatch if regexes else None
        return self._index, frozenset(names), tuple(ends), by_name, self._paths


def _groups(patterns: Sequence[Pattern]) -> list[_Group]:
    runs: list[list[Pattern]] = []
    for pattern in patterns:
        if runs and runs[-1][0].takes_in == pattern.takes_in:
            runs[-1].append(pattern)
        else:
            runs.append([pattern])
    return [_Group(i, run) for i, run in enumerate(runs)]


def _before_stars(parts: list[str]) -> list[str]:
    """Returns the parts before the first ``**``."""
    return parts[: next((i for i, p in enumerate(parts) if "**" in p), len(parts))]


def _may_match_below(
    parts: list[str], prefix: list[Callable[[str], object]], folder: tuple[str, ...]
) -> bool:
    """Returns True if a pattern can match below a folder that it does not match itself."""
    if not all(matches(name) for matches, name in zip(prefix, folder, strict=False)):
        return False
    return len(prefix) < len(parts) or len(parts) > len(folder)
