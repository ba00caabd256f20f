"""A layer is an ordinary archive, the same for the same workspace, and cheap to make again."""

import gzip
import io
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx._projects.entry import Entry
from torchx._projects.tree import scan
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError
from torchx.workspace._registry._base_tree import Node
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._layer import Layer, make_layer

from .fake_registry import digest_of

LATER_NS = 10_000_000_000


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def make(
    root: Path, cache: Cache, into: Sequence[tuple[str, Node]] = (), *, settled: bool = True
) -> Layer:
    """A layer; with `settled`, as if the files had last changed long ago."""
    now_ns = time.time_ns() + (LATER_NS if settled else 0)
    return make_layer(scan(str(root)), into, cache, "slot", now_ns)


def raw(layer: Layer) -> bytes:
    data = Path(layer.blob.path).read_bytes()
    assert digest_of(data) == layer.blob.digest
    assert len(data) == layer.blob.size
    archive = gzip.decompress(data)
    assert digest_of(archive) == layer.diff_id
    return archive


def members(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(raw(layer))) as tar:
        return {m.name: m for m in tar}


def read(layer: Layer, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(raw(layer))) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def many_files(root: Path, count: int = 400) -> Path:
    root.mkdir(exist_ok=True)
    for number in range(count):
        folder = root / f"d{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}.txt").write_text(f"content {number}\n" * 20)
    return root


def test_files_folders_and_links_are_there_as_they_are(workspace: Path, cache: Cache) -> None:
    (workspace / "pkg/set").write_text("x")
    (workspace / "pkg/set").chmod(0o4755)
    layer = make(workspace, cache)
    found = members(layer)
    assert list(found) == [
        *("main.py", "pkg", "pkg/data.txt", "pkg/empty", "pkg/link", "pkg/set"),
    ]
    assert read(layer, "main.py") == b"print('hello')\n"
    assert found["main.py"].mode == 0o755
    assert found["pkg"].isdir()
    assert found["pkg"].mode == 0o750
    assert found["pkg/set"].mode == 0o755  # it would be root's now
    assert found["pkg/link"].issym()
    assert found["pkg/link"].linkname == "../main.py"
    for member in found.values():
        assert (member.uid, member.gid, member.mtime, member.uname) == (0, 0, 0, "")


def test_the_same_workspace_gives_the_same_bytes_anywhere(
    workspace: Path, tmp_path: Path, cache: Cache
) -> None:
    first = make(workspace, cache)
    other = tmp_path / "other"
    os.system(f"cp -r --preserve=mode,links {workspace} {other}")
    second = make(other, Cache(tmp_path / "cache2"), settled=False)
    assert second.blob.digest == first.blob.digest
    assert second.diff_id == first.diff_id


def test_an_image_s_own_directories_keep_mode_and_owner(workspace: Path, cache: Cache) -> None:
    into = [("home", Node("dir", 0o755)), ("home/me", Node("dir", 0o700, 1000, 3_000_000))]
    found = members(make(workspace, cache, into))
    assert list(found)[:3] == ["home", "home/me", "home/me/main.py"]
    me = found["home/me"]
    assert (me.mode, me.uid, me.gid) == (0o700, 1000, 3_000_000)


@pytest.mark.parametrize(
    "name", ["a" * 101, "d/" * 60 + "x", "ü" * 60, "né", "a b\nc", "x" * 255, "back\\slash", "-x"]
)
def test_any_name_is_kept(tmp_path: Path, cache: Cache, name: str) -> None:
    path = tmp_path / "ws" / name
    path.parent.mkdir(parents=True)
    path.write_text("content")
    (tmp_path / "ws/link").symlink_to(name)
    layer = make(tmp_path / "ws", cache)
    assert read(layer, name) == b"content"
    assert members(layer)["link"].linkname == name


def test_a_name_that_is_not_text_is_kept(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "ws").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "ws") + b"/\xff\xfe")).write_text("1")
    raw_names = raw(make(tmp_path / "ws", cache))
    assert raw_names.startswith(b"\xff\xfe\0")


def test_nothing_at_all_is_an_empty_archive(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "ws").mkdir()
    assert members(make(tmp_path / "ws", cache)) == {}


def test_an_unchanged_workspace_is_not_read_again(tmp_path: Path, cache: Cache) -> None:
    root = many_files(tmp_path / "ws")
    first = make(root, cache)
    entries = scan(str(root))
    for entry in entries:
        entry.source = "/gone"  # reading it would fail
    again = make_layer(entries, (), cache, "slot", time.time_ns() + LATER_NS)
    assert again == first


def test_only_what_is_near_a_change_is_read_again(tmp_path: Path, cache: Cache) -> None:
    root = many_files(tmp_path / "ws", 2000)
    make(root, cache)
    (root / "d3/f3.txt").write_text("changed")
    (root / "d5/added.txt").write_text("added")
    (root / "d1/f1.txt").unlink()
    entries = scan(str(root))
    read_paths = []
    for entry in entries:
        entry.source = _Watched(entry.source, read_paths)
    layer = make_layer(entries, (), cache, "slot", time.time_ns() + LATER_NS)
    assert len(set(read_paths)) < 1000
    assert read(layer, "d3/f3.txt") == b"changed"
    assert read(layer, "d5/added.txt") == b"added"
    assert "d1/f1.txt" not in members(layer)
    fresh = make_layer(scan(str(root)), (), Cache(tmp_path / "fresh"), "slot")
    assert fresh.blob.digest == layer.blob.digest


class _Watched(str):
    """A path that notes when it is opened."""

    read: list[str]

    def __new__(cls, path: str, read: list[str]) -> "_Watched":
        self = super().__new__(cls, path)
        self.read = read
        return self

    def __contains__(self, text: str) -> bool:  # asked before it is opened: "://" in source
        self.read.append(str(self))
        return super().__contains__(text)


def test_a_file_changed_a_moment_ago_is_read_again(tmp_path: Path, cache: Cache) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    path = root / "f"
    path.write_text("1")
    entries = scan(str(root))
    make_layer(entries, (), cache, "slot")
    path.write_text("2")  # as if within the clock's resolution: with the same times
    layer = make_layer(entries, (), cache, "slot")
    assert read(layer, "f") == b"2"


@pytest.mark.parametrize("change", ["content", "mode", "name", "kind", "link"])
def test_every_change_is_noticed(workspace: Path, cache: Cache, change: str) -> None:
    before = make(workspace, cache)
    path = workspace / "pkg/data.txt"
    if change == "content":
        times = path.stat()
        path.write_text("2")  # of the same size
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif change == "mode":
        path.chmod(0o640)
    elif change == "name":
        path.rename(workspace / "pkg/data.tx_")
    elif change == "kind":
        path.unlink()
        path.mkdir()
    else:
        (workspace / "pkg/link").unlink()
        (workspace / "pkg/link").symlink_to("data.txt")
    after = make(workspace, cache)
    assert after.blob.digest != before.blob.digest
    raw(after)


def test_a_large_file_goes_through_in_blocks(tmp_path: Path, cache: Cache) -> None:
    root = many_files(tmp_path / "ws", 100)
    content = os.urandom(9 << 20)
    (root / "d3/large").write_bytes(content)
    first = make(root, cache)
    assert read(first, "d3/large") == content
    (root / "d0/f0.txt").write_text("changed")
    second = make(root, cache)
    assert read(second, "d3/large") == content


def test_a_damaged_or_missing_cache_costs_only_time(tmp_path: Path, cache: Cache) -> None:
    root = many_files(tmp_path / "ws")
    first = make(root, cache)
    (root / "d0/f0.txt").write_text("changed")
    path = Path(first.blob.path)
    path.write_bytes(bytes(first.blob.size))
    changed = make(root, cache)
    assert read(changed, "d0/f0.txt") == b"changed"
    Path(changed.blob.path).unlink()
    assert make(root, cache) == changed
    raw(changed)
    cache.path("slots", "slot").write_text("[")
    assert make(root, cache) == changed


def test_old_layers_do_not_pile_up(tmp_path: Path, cache: Cache) -> None:
    root = many_files(tmp_path / "ws", 5)
    for number in range(6):
        (root / "new").write_text(str(number))
        make(root, cache)
    assert len([*cache.path("layers", "x").parent.iterdir()]) == 3


def test_what_a_killed_build_left_is_removed_by_the_next(workspace: Path, cache: Cache) -> None:
    folder = cache.path("layers", "x").parent
    build = (
        "import sys, time, pathlib, torchx.workspace._registry._cache as c\n"
        "with c.Cache(pathlib.Path(sys.argv[1])).new_file('layers') as (file, _):\n"
        "    file.write(b'x' * 1000000); print(flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", build, str(folder.parent)], stdout=subprocess.PIPE
    )
    with child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            (new,) = folder.iterdir()
            an_hour_ago = time.time() - 3600
            os.utime(new, (an_hour_ago, an_hour_ago))
            make(workspace, cache)
            assert new.exists()
        finally:
            child.terminate()
    (workspace / "main.py").write_text("changed")
    make(workspace, cache)
    assert not new.exists()


@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_a_file_that_changes_while_it_is_packed_is_named(
    workspace: Path, cache: Cache, change: str
) -> None:
    entries = scan(str(workspace))
    (workspace / "main.py").write_text("" if change == "shorter" else "longer" * 100)
    with pytest.raises(InvalidInput, match=r"main\.py` of the workspace changed while"):
        make_layer(entries, (), cache, "slot")
    assert not [*cache.path("layers", "x").parent.iterdir()]


def test_a_file_that_is_gone_is_named(workspace: Path, cache: Cache) -> None:
    entries = scan(str(workspace))
    (workspace / "main.py").unlink()
    with pytest.raises(TorchXError, match=r"main\.py") as caught:
        make_layer(entries, (), cache, "slot")
    assert not isinstance(caught.value, BackendUnavailable)


def test_content_that_is_in_no_file_is_packed_too(cache: Cache) -> None:
    entries = [Entry("Dockerfile.torchx", "file", 0o644, 3, content=b"abc")]
    first = make_layer(entries, (), cache, "slot")
    assert read(first, "Dockerfile.torchx") == b"abc"
    assert make_layer(entries, (), cache, "slot") == first
    entries = [Entry("Dockerfile.torchx", "file", 0o644, 3, content=b"xyz")]
    assert read(make_layer(entries, (), cache, "slot"), "Dockerfile.torchx") == b"xyz"


def test_a_workspace_elsewhere_is_packed_too(cache: Cache) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe("/layer-test/a/b.txt", b"remote")
    layer = make_layer(scan("memory://layer-test"), (), cache, "slot")
    assert read(layer, "a/b.txt") == b"remote"
    fs.pipe("/layer-test/a/b.txt", b"changed"[:6])
    layer = make_layer(scan("memory://layer-test"), (), cache, "slot")
    assert read(layer, "a/b.txt") == b"change"


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(workspace: Path, cache: Cache) -> None:
    (workspace / "large").write_bytes(os.urandom(6 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # as if no more space was left
    try:
        with pytest.raises(BackendUnavailable, match="TORCHX_HOME") as caught:
            make(workspace, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert not [*cache.path("layers", "x").parent.iterdir()]
    raw(make(workspace, cache))


def test_a_cache_in_the_wrong_place_is_one_clear_line(workspace: Path) -> None:
    with pytest.raises(BackendUnavailable, match="TORCHX_HOME"):
        make(workspace, Cache(Path("/dev/null/cache")))


_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
_ENTRIES = st.dictionaries(
    _NAMES.filter(lambda n: n not in (".", "..")),
    st.tuples(st.binary(max_size=2000), st.integers(0, 0o7777)),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(first=_ENTRIES, second=_ENTRIES)
def test_a_layer_made_from_the_last_one_equals_one_made_anew(
    tmp_path_factory: pytest.TempPathFactory,
    first: dict[str, tuple[bytes, int]],
    second: dict[str, tuple[bytes, int]],
) -> None:
    root = tmp_path_factory.mktemp("caches")

    def entries(of: dict[str, tuple[bytes, int]]) -> list[Entry]:
        return [
            Entry(name, "file", mode, len(data), content=data)
            for name, (data, mode) in sorted(of.items())
        ]

    kept, fresh = Cache(root / "kept"), Cache(root / "fresh")
    make_layer(entries(first), (), kept, "slot")
    after = make_layer(entries({**first, **second}), (), kept, "slot")
    anew = make_layer(entries({**first, **second}), (), fresh, "slot")
    assert (after.blob.digest, after.diff_id) == (anew.blob.digest, anew.diff_id)
    expected = {name: data for name, (data, _) in {**first, **second}.items()}
    with tarfile.open(fileobj=io.BytesIO(raw(after))) as tar:
        assert {m.name: tar.extractfile(m).read() for m in tar} == expected  # type: ignore[union-attr]


def test_the_format_of_the_layer_does_not_change_unnoticed(cache: Cache) -> None:
    """The digest of the archive is a promise: an upgrade must not upload everything again."""
    entries = [
        Entry("dir", "dir", 0o755),
        Entry("dir/file", "file", 0o644, 4, content=b"text"),
        Entry("dir/link", "link", 0o777, target="file"),
    ]
    layer = make_layer(entries, [("app", Node("dir", 0o755))], cache, "slot")
    expected = io.BytesIO()
    with tarfile.open(fileobj=expected, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, kind, mode in (("app", b"5", 0o755), ("app/dir", b"5", 0o755)):
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, mode
            tar.addfile(member)
        member = tarfile.TarInfo("app/dir/file")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"text"))
        member = tarfile.TarInfo("app/dir/link")
        member.type, member.mode, member.linkname = b"2", 0o777, "file"
        tar.addfile(member)
    assert raw(layer) == expected.getvalue()[: len(raw(layer))]
