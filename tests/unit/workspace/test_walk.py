"""``walk_workspace``."""

from pathlib import Path

import fsspec
import pytest

from tests.unit.workspace.trees import ignore, make
from torchx.errors import InvalidInput
from torchx.workspace import walk_workspace


def test_folders_are_listed_as_os_walk_does(tmp_path: Path):
    make(tmp_path, "b/c/f", "a/f", "top", "empty/", "data/x")
    ignore(tmp_path, "data")
    (tmp_path / "a/link").symlink_to("f")
    fs, path = fsspec.core.url_to_fs(f"file://{tmp_path}")
    found = [(d, dirs, list(files)) for d, dirs, files in walk_workspace(fs, path)]
    assert found == [
        (path, ["a", "b", "empty"], [".torchxignore", "top"]),
        (f"{path}/a", [], ["f", "link"]),
        (f"{path}/b", ["c"], []),
        (f"{path}/b/c", [], ["f"]),
        (f"{path}/empty", [], []),
    ]


def test_files_are_described_as_fsspec_does(tmp_path: Path):
    make(tmp_path, "f")
    (tmp_path / "f").chmod(0o750)
    (tmp_path / "link").symlink_to("f")
    fs, path = fsspec.core.url_to_fs(str(tmp_path))
    ((_, _, files),) = walk_workspace(fs, path)
    assert dict(files["f"]) == fs.info(f"{path}/f")
    assert files["f"]["name"] == f"{path}/f"
    assert (files["f"]["size"], files["f"]["mode"], len(files["f"])) == (1, 0o100750, 11)
    assert (files["link"]["islink"], files["link"]["destination"]) == (True, "f")
    assert "'size': 1" in repr(files["f"])
    (tmp_path / "f").unlink()
    ((_, _, files),) = walk_workspace(fs, path)
    assert [*files] == ["link"]


def test_a_missing_path_has_no_folders_and_a_file_has_an_empty_name(tmp_path: Path):
    make(tmp_path, "f")
    fs = fsspec.filesystem("file")
    assert list(walk_workspace(fs, str(tmp_path / "gone"))) == []
    ((folder, dirs, files),) = walk_workspace(fs, str(tmp_path / "f"))
    assert (folder, dirs, list(files)) == (str(tmp_path / "f"), [], [""])
    assert files[""]["size"] == 1


def test_the_ignore_file_has_the_name_that_is_given(tmp_path: Path):
    make(tmp_path, "a", "b", "c")
    ignore(tmp_path, "a", ".torchxignore")
    ignore(tmp_path, "b", ".dockerignore")
    ignore(tmp_path, "c", ".otherignore")
    fs = fsspec.filesystem("file")

    def files(**name: str) -> set[str]:
        ((_, _, found),) = walk_workspace(fs, str(tmp_path), **name)
        return {"a", "b", "c"} - set(found)

    assert files() == {"a"}
    assert files(ignore_name=".dockerignore") == {"b"}
    assert files(ignore_name=".otherignore") == {"c"}
    assert files(ignore_name="none") == set()
    (tmp_path / ".torchxignore").unlink()
    assert files() == {"b"}


def test_other_file_systems_are_walked_alike():
    fs = fsspec.filesystem("memory")
    fs.pipe({"/walked/a/f": b"1", "/walked/b/g": b"", "/walked/.dockerignore": b"b\n.*"})
    fs.makedirs("/walked/empty")
    found = [(d, dirs, list(files)) for d, dirs, files in walk_workspace(fs, "memory://walked/")]
    assert found == [
        ("/walked", ["a", "empty"], []), ("/walked/a", [], ["f"]), ("/walked/empty", [], []),
    ]  # fmt: skip
    ((_, _, files),) = walk_workspace(fs, "/walked/a/f")
    assert files[""]["size"] == 1
    assert list(walk_workspace(fs, "/not-walked")) == []


def test_a_bad_pattern_is_said_at_the_call(tmp_path: Path):
    ignore(tmp_path, "[")
    with pytest.raises(InvalidInput, match="line 1"):
        walk_workspace(fsspec.filesystem("file"), str(tmp_path))
