"""The grammar of ignore files, against a table, a slow matcher, and what makes no sense."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.workspace.trees import ignore, make
from torchx._projects.ignore import Rules
from torchx._projects.patterns import Pattern, parse
from torchx._projects.tree import scan
from torchx.errors import InvalidInput


def kept(text: str, paths: list[str]) -> list[str]:
    """The files that a walk comes across and keeps."""
    tree: dict[str, set[str]] = {"": set()}
    for path in paths:
        parts = path.split("/")
        for i in range(len(parts)):
            tree.setdefault("/".join(parts[:i]), set()).add(parts[i])
    found = []

    def walk(folder: str, scope) -> None:
        for name in tree[folder]:
            path = f"{folder}/{name}" if folder else name
            if path in tree:
                _, below = scope.enter(name)
                if below is not None:
                    walk(path, below)
            elif scope.keeps(name):
                assert not scope.everything_kept or scope.keeps(name)
                found.append(path)

    walk("", Rules(parse(text), skip_default=False).root())
    return sorted(found)


TREE = ["data/a", "data/c.yaml", "x.csv", "sub/y.csv", "keep.py", "sub/data/z"]


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("data", "data/a data/c.yaml"),
        ("data/", "data/a data/c.yaml"),
        ("/data", "data/a data/c.yaml"),
        ("./data", "data/a data/c.yaml"),
        ("/../data//.", "data/a data/c.yaml"),
        ("sub/../data", "data/a data/c.yaml"),
        ("../data", ""),
        ("  data  \r", "data/a data/c.yaml"),
        ("\ufeffdata", "data/a data/c.yaml"),
        ("#data\n # data\n\n.\n/\n!.", ""),
        ("keep.py # not a comment", ""),
        ("**/data", "data/a data/c.yaml sub/data/z"),
        ("**/data/**", "data/a data/c.yaml sub/data/z"),
        ("data/**", "data/a data/c.yaml"),
        ("*.csv", "x.csv"),
        ("**/*.csv", "x.csv sub/y.csv"),
        ("*/*.csv", "sub/y.csv"),
        ("**", " ".join(TREE)),
        ("*", " ".join(TREE)),
        ("data/*\n!data/c.yaml", "data/a"),
        ("data\n!data/c.yaml", "data/a"),
        ("data\n!**/*.yaml", "data/a"),
        ("data\n! data/c.yaml\ndata", "data/a data/c.yaml"),
        ("*\n!keep.py", "data/a data/c.yaml x.csv sub/y.csv sub/data/z"),
        ("*\n!sub", "data/a data/c.yaml x.csv keep.py"),
        ("*\n!**/z", "data/a data/c.yaml x.csv sub/y.csv keep.py"),
        ("sub\n!sub\nsub/data", "sub/data/z"),
        ("sub/data\nsub\n!sub", ""),
        ("sub\n!sub/da*", "sub/y.csv"),
        ("su?/data", "sub/data/z"),
        ("sub?data", ""),
        ("s**/z", "sub/data/z"),
        ("**y.csv", "sub/y.csv"),
    ],
)
def test_patterns_leave_out_what_the_grammar_says(text, left_out):
    assert sorted(set(TREE) - set(kept(text, TREE))) == sorted(left_out.split())


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("dir?", "dir1", "dir dir12"),
        ("a[b-d]e", "abe ace", "ae aae abbe"),
        ("a[^b-d]e", "aae axe", "ace ae"),
        ("[a-cx]", "a b x", "d -"),
        (r"[\]\-]", "] -", "a \\"),
        ("[!a]", "! a", "b"),
        (r"a\*b", "a*b", "axb a\\*b"),
        (r"\#x", "#x", "x"),
        (r"\!x", "!x", "x"),
        (r"a\\", "a\\", "a"),
        (".*", ".foo .", "foo"),
        ("a.c", "a.c", "abc"),
        ("a+(b){c}|$^", "a+(b){c}|$^", "ab"),
        ("]", "]", "a"),
        ("*a*", "a bab", "b"),
        ("a*b*c", "abc axbxc", "acb"),
        ("**file", "file xfile", "filex"),
        ("a**", "a ab", "ba"),
        ("**/b*", "b bc", "ab"),
    ],
)
def test_names_match(pattern, matching, others):
    names = [*matching.split(), *others.split()]
    assert sorted(set(names) - set(kept(pattern, names))) == sorted(matching.split())


@pytest.mark.parametrize(
    "pattern", ["[", "[a", "[]a]", "[^]", "[a-]", "[-a]", "[z-a]", "a\\", "!", "! ", "a/[b/c]"]
)
def test_a_malformed_pattern_is_named_with_its_line(pattern):
    with pytest.raises(InvalidInput, match="line 2 of `f` has the pattern") as error:
        parse(f"# first\n{pattern}\n", "`f`")
    assert f"`{pattern.strip()}`" in str(error.value)


def test_patterns_are_normalized():
    assert parse("a//b/\n!/c/./d\n") == [Pattern("a/b", False), Pattern("c/d", True)]


# -- against a matcher that is slow and obvious ----------------------------------------------------


def slow_match(pattern: str, path: str) -> bool:
    if pattern.startswith("**") and not set(pattern[2:]) & set("*?[]\\"):
        rest = pattern[2:]
        return path.endswith(rest) or (rest[:1] == "/" and path == rest[1:])
    return slow_rest(pattern, path)


def slow_rest(pattern: str, path: str) -> bool:
    if not pattern:
        return not path
    if pattern.startswith("**"):
        rest = pattern[2:].removeprefix("/")
        starts = [0, *(i + 1 for i, char in enumerate(path) if char == "/")]
        return not rest or any(slow_rest(rest, path[i:]) for i in starts)
    if pattern[0] == "*":
        ends = [i for i in range(len(path) + 1) if "/" not in path[:i]]
        return any(slow_rest(pattern[1:], path[i:]) for i in ends)
    if not path:
        return False
    if pattern[0] == "?":
        return path[0] != "/" and slow_rest(pattern[1:], path[1:])
    if pattern[0] == "[":
        inside, _, rest = pattern[1:].partition("]")
        hit = (path[0] in inside.removeprefix("^")) != inside.startswith("^")
        return hit and path[0] != "/" and slow_rest(rest, path[1:])
    return pattern[0] == path[0] and slow_rest(pattern[1:], path[1:])


def slow_kept(text: str, paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        parts = path.split("/")
        ignored = False
        for pattern in parse(text):
            if any(slow_match(pattern.text, "/".join(parts[: i + 1])) for i in range(len(parts))):
                ignored = not pattern.takes_in
        if not ignored:
            found.append(path)
    return sorted(found)


NAMES = ("a", "b", "ab", "ba", "a.b", "aab")
PARTS = ("a", "b", "ab", "*", "**", "?", "a*", "*b", "*.b", "[ab]", "[^a]b", "a**", "**b", "a?b")
PATHS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), max_size=12)
LINES = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from(PARTS), min_size=1, max_size=4)),
    max_size=6,
)


@given(PATHS, LINES)
@example([["a", "b"]], [(False, ["a"]), (True, ["a", "b"]), (False, ["a"])])
@example([["a", "b", "ab"]], [(False, ["*"]), (True, ["**", "ab"])])
@example([["a", "b", "ab"]], [(False, ["**"]), (True, ["a", "**", "ab"])])
def test_a_walk_keeps_what_the_slow_matcher_keeps(paths, lines):
    files = {"/".join(path) for path in paths}
    above = {file.rpartition("/")[0] for file in files}
    above |= {folder.rpartition("/")[0] for folder in above}
    above |= {folder.rpartition("/")[0] for folder in above}
    files = sorted(files - above)  # a path is a file or a folder
    text = "\n".join("!" * takes_in + "/".join(parts) for takes_in, parts in lines)
    assert kept(text, files) == slow_kept(text, files)


def test_a_pattern_that_was_meant_for_every_level_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "a.py", "pkg/b.pyc", "pkg/c.pyc", "pkg/data/d", "top.log", "pkg/e.log")
    ignore(tmp_path, "*.pyc\n*.log\ndata\n*.gone\n*\n!pkg\n!a.py\n")
    found = [entry.path for entry in scan(str(tmp_path))]
    assert "pkg/b.pyc" in found
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "`*.pyc`" in told[0]
    assert "`pkg/b.pyc` is included, write `**/*.pyc`" in told[0]
    assert "`data`" in told[1]
    caplog.clear()
    ignore(tmp_path, "**/*.pyc\n**/data\n")
    scan(str(tmp_path))
    assert caplog.records == []
