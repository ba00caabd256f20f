"""Where the folders of a copy lie on a real ext4, with and without a journal."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.workspace._copy import copy
from torchx.workspace._ext4 import crowded, has_no_journal, spread
from torchx.workspace._tree import Entry, scan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ext4 is a file system of Linux")


def entries(*paths: str) -> list[Entry]:
    return [Entry(p.rstrip("/"), "dir" if p.endswith("/") else "file", 0o755) for p in paths]


def files(folder: str, count: int) -> list[str]:
    return [f"{folder}/", *(f"{folder}/f{number:03}" for number in range(count))]


def test_folders_with_many_files_below_them_are_crowded_unless_they_have_many_folders():
    large = [*files("a", 10), *files("a/x", 200), *files("a/y", 100)]
    flat = files("b", 400)
    small = ["c/", *(path for i in range(200) for path in files(f"c/{i:03}", 1))]
    assert crowded(entries(*large, *flat, *small)) == {"", "a"}
    assert crowded(entries(*large)) == {"", "a"}
    assert crowded(entries(*flat)) == {""}
    assert crowded(entries(*files("a", 50))) == set()
    assert crowded([]) == set()


def test_what_is_on_no_disk_has_no_journal_to_miss():
    assert not has_no_journal("/proc")
    spread("/proc/self")  # it does not know the attribute: nothing happens


@pytest.fixture(params=["journal", "no journal"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An ext4 of its own, mounted."""
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        pytest.skip("only root can mount a file system, and it takes mkfs.ext4")
    image, mounted = tmp_path / "image", tmp_path / request.param.replace(" ", "-")
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    feature = "has_journal" if request.param == "journal" else "^has_journal"
    subprocess.run(["mkfs.ext4", "-q", "-O", feature, image], check=True)
    mount = ["mount", "-o", "loop", image, mounted]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_only_without_a_journal_are_folders_spread(disk: Path, tmp_path: Path):
    source = tmp_path / "source"
    for name in files("src/a", 200) + files("src/b", 200) + files("docs", 5):
        path = source / name
        path.mkdir(parents=True) if name.endswith("/") else path.write_text(name)
    copy(scan(str(source)), str(disk / "out"))
    assert sorted(p.relative_to(disk / "out") for p in (disk / "out").rglob("*")) == sorted(
        p.relative_to(source) for p in source.rglob("*")
    )
    folders = [disk / "out", *(p for p in (disk / "out").rglob("*") if p.is_dir())]
    listed = subprocess.run(
        ["lsattr", "-d", *folders],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    spread_out = {path for flags, path in map(str.split, listed) if "T" in flags}
    if disk.name == "journal":
        assert spread_out == set()
    else:
        assert spread_out == {str(disk / "out"), str(disk / "out/src")}
