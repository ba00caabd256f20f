"""A test case with a directory of its own, and helpers to fill and compare directories."""

import os
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

__all__ = ["IS_CI", "IS_MACOS", "DirTree", "TestWithTmpDir", "write_shell_script"]

IS_CI: bool = os.environ.get("CI", "").lower() == "true"
IS_MACOS: bool = sys.platform == "darwin"

DirTree: TypeAlias = Mapping[str, "object"]
"""Names of a directory: a mapping is a directory, ``""`` any file, all else the file's text."""

PathLike: TypeAlias = "str | os.PathLike[str]"


def write_shell_script(
    dir: PathLike,
    name: str,
    content: list[str],
) -> str:
    """Path of a new executable bash script of these lines."""
    path = os.path.join(dir, name)
    with open(path, "w") as file:
        file.write("\n".join(["#! /bin/bash", *content, "", ""]))
    os.chmod(path, 0o755)
    return path


class TestWithTmpDir(unittest.TestCase):
    """Gives every test method a fresh directory ``self.tmpdir``; relative paths are below it."""

    tmpdir: Path

    def setUp(self) -> None:
        """Creates the directory."""
        self.tmpdir = Path(tempfile.mkdtemp(prefix=f"torchx-{type(self).__name__}-"))

    def tearDown(self) -> None:
        """Removes the directory."""
        shutil.rmtree(self.tmpdir, ignore_errors=True)

    def touch(self, filepath: PathLike) -> Path:
        """Creates an empty file and its parents."""
        path = self._with_parents(filepath)
        path.touch()
        return path

    def mkdir(self, dirpath: PathLike) -> Path:
        """Creates a directory and its parents; one that exists is fine."""
        path = self.tmpdir / dirpath
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, filepath: PathLike, content: Iterable[str]) -> Path:
        """Writes the strings one after the other; newlines are up to the caller."""
        path = self._with_parents(filepath)
        with path.open("w") as file:
            file.writelines(content)
        return path

    def write_shell_script(self, script_path: PathLike, content: list[str]) -> Path:
        """Writes an executable bash script; its directory must exist."""
        return Path(write_shell_script(self.tmpdir, os.fspath(script_path), content))

    def read(self, filepath: PathLike) -> list[str]:
        """Lines of a file, with their newlines."""
        with (self.tmpdir / filepath).open() as file:
            return file.readlines()

    def create_dir_tree(self, root: PathLike, tree: DirTree) -> Path:
        """Builds the tree below ``root`` and returns the path of ``root``."""
        path = self.mkdir(root)
        for name, value in tree.items():
            if isinstance(value, Mapping):
                self.create_dir_tree(path / name, value)
            else:
                self.write(path / name, str(value))
        return path

    def assertDirIsEmpty(self, directory: PathLike) -> None:
        """Fails unless it is a directory without entries."""
        self.assertDirTree(directory, {})

    def assertDirTree(self, root: PathLike, tree: DirTree) -> None:
        """Fails unless the directory holds exactly the tree; texts are compared stripped."""
        path = self.tmpdir / root
        if not path.is_dir():
            self.fail(f"`{path}` is not a directory")
        found = sorted(os.listdir(path))
        if found != sorted(tree):
            self.fail(f"`{path}` holds {found}, expected {sorted(tree)}")
        for name, value in tree.items():
            if isinstance(value, Mapping):
                self.assertDirTree(path / name, value)
                continue
            if not (path / name).is_file():
                self.fail(f"`{path / name}` is not a file")
            text = (path / name).read_text().strip()
            if value != "" and text != str(value).strip():
                self.fail(f"`{path / name}` holds {text!r}, expected {str(value).strip()!r}")

    def _with_parents(self, filepath: PathLike) -> Path:
        path = self.tmpdir / filepath
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
