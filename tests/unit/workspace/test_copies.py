"""Workspaces copied into directories, and packed as archives."""

import io
import os
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from tests.unit.workspace.trees import ignore, make, on_disk, paths
from torchx._projects.copy import (
    _copy_some,
    _make_shared_folders,
    _Target,
    _threads,
    copy,
)
from torchx._projects.entry import Entry
from torchx._projects.tree import scan
from torchx.errors import InvalidInput, TorchXError
from torchx.schedulers.api import Scheduler
from torchx.specs import AppDef, AppDryRunInfo, Role, Workspace
from torchx.workspace._copies import place
from torchx.workspace._tar import TarFile, TarStream
from torchx.workspace.dir_workspace import (
    DirWorkspaceMixin,
    TmpDirWorkspaceMixin,
    _copy_to_dir,
)


def mixed_tree(root: Path) -> Path:
    """Everything that a copy has to keep."""
    make(root, "a/f", "a/run.sh", "b/c/g", "empty/", ".hidden", "left.out", "a/__pycache__/x")
    ignore(root, "left.out")
    (root / "a/run.sh").chmod(0o755)
    (root / "a/f").chmod(0o640)
    (root / "b/c").chmod(0o750)
    (root / "a/link").symlink_to("../b/c/g")
    (root / "gone").symlink_to("nowhere")
    (root / "big").write_bytes(os.urandom(3_000_001).hex().encode())
    return root


def expected(root: Path) -> dict[str, object]:
    found = on_disk(root)
    return {k: v for k, v in found.items() if k != "left.out" and "__pycache__" not in k}


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    return make(tmp_path / "src", "f", large="1" * 5000)


@contextmanager
def small_files_only() -> Iterator[None]:
    """Has the system refuse to write more than 4 KiB into a file.

    Only around what is tested: the output of the tests may be a file as well.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


# -- copies ----------------------------------------------------------------------------------------


def test_modes_links_times_and_empty_folders_are_kept(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    os.utime(source / "a/f", ns=(1, 1_234_567_890_123_456_789))
    Workspace({str(source): ""}).merge_into(tmp_path / "out")
    assert on_disk(tmp_path / "out") == expected(source)
    assert (tmp_path / "out/a/f").stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_what_is_there_is_replaced_and_never_written_through(tmp_path: Path):
    source = make(tmp_path / "src", "f", "g", "d/x")
    (source / "l").symlink_to("f")
    out = make(tmp_path / "out", "stays", "l")
    victim = make(tmp_path, "victim") / "victim"
    folder = make(tmp_path / "victims", "x")
    (out / "f").symlink_to(victim)
    os.link(victim, out / "g")
    (out / "d").symlink_to(folder)
    Workspace({str(source): ""}).merge_into(out)
    assert (victim.read_text(), (folder / "x").read_text()) == ("victim", "x")
    assert sorted(on_disk(out)) == ["d", "d/x", "f", "g", "l", "stays"]
    assert (out / "l").readlink() == Path("f")


def test_a_workspace_that_is_merged_into_itself_stays(tmp_path: Path):
    source = mixed_tree(tmp_path / "w")
    before = on_disk(source)
    Workspace({str(source): ""}).merge_into(source)
    Workspace({str(source): "w"}).merge_into(tmp_path)
    assert on_disk(source) == before


def test_a_folder_that_must_not_be_written_to_is_copied_with_its_content(tmp_path: Path):
    source = make(tmp_path / "src", "ro/f")
    (source / "ro").chmod(0o555)
    for _ in range(2):
        Workspace({str(source): ""}).merge_into(tmp_path / "out")
    assert (tmp_path / "out/ro").stat().st_mode & 0o777 == 0o555
    assert (tmp_path / "out/ro/f").read_text() == "ro/f"


@pytest.mark.parametrize("target", ["new", "empty", "setgid", "used"])
def test_modes_of_folders_are_kept_wherever_they_are_copied_to(tmp_path: Path, target: str):
    modes = {"usual": 0o755, "own": 0o700, "shared": 0o2775, "ro": 0o555, "usual/in": 0o755}
    source, out = tmp_path / "src", tmp_path / target
    for name, mode in modes.items():
        (source / name).mkdir(parents=True)
        (source / name).chmod(mode)
    if target != "new":
        out.mkdir()
    if target == "setgid":
        out.chmod(0o2755)
    if target == "used":
        (out / "usual").mkdir(parents=True)
        (out / "usual").chmod(0o711)
    copy(scan(str(source)), str(out))
    assert {name: (out / name).stat().st_mode & 0o7777 for name in modes} == modes


@pytest.mark.parametrize(("there", "comes"), [("x/y", "x"), ("x", "x/y")])
def test_a_file_and_a_folder_of_one_name_are_an_error(tmp_path: Path, there, comes):
    make(tmp_path / "out", there)
    source = make(tmp_path / "src", comes)
    with pytest.raises(InvalidInput, match="remove it"):
        Workspace({str(source): ""}).merge_into(tmp_path / "out")


def test_projects_from_the_home_are_merged(tmp_path: Path):
    make(Path.home() / "proj", "f")
    Workspace({"~/proj": "lib"}).merge_into(tmp_path)
    assert (tmp_path / "lib/f").read_text() == "f"


def test_a_workspace_in_memory_is_merged(tmp_path: Path):
    fs = fsspec.filesystem("memory")
    fs.pipe({"/merged/a/f": b"1", "/merged/one": b"2"})
    Workspace({"memory://merged": ""}).merge_into(tmp_path / "out")
    Workspace({"memory://merged/one": "a"}).merge_into(str(tmp_path / "out"))
    assert [*on_disk(tmp_path / "out")] == ["a", "a/f", "a/one", "one"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    make(tmp_path, "file")
    with pytest.raises(TorchXError, match=f"cannot copy the workspace to `{tmp_path}/file/out`"):
        Workspace({str(source): ""}).merge_into(tmp_path / "file/out")


def test_a_file_that_vanishes_ends_the_copy(tmp_path: Path):
    source = make(tmp_path / "src", *(f"{i}" for i in range(600)))
    entries = scan(str(source))
    (source / "77").unlink()
    with pytest.raises(TorchXError, match=r"cannot read `.*/77`"):
        copy(entries, str(tmp_path / "out"))


def test_a_disk_that_takes_no_more_is_said(tmp_path: Path, large_file):
    source = large_file
    message = f"cannot copy the workspace to `{tmp_path}/out/large`"
    with pytest.raises(TorchXError, match=message), small_files_only():
        Workspace({str(source): ""}).merge_into(tmp_path / "out")


def test_a_target_may_be_a_url(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    (source / "out").symlink_to("/etc/passwd")
    _copy_to_dir(str(source), "memory://copied")
    fs = fsspec.filesystem("memory")
    assert fs.cat("/copied/a/link") == b"b/c/g"
    found = {p.removeprefix("/copied/") for p in fs.find("/copied")}
    files = {".hidden", ".torchxignore", "a/f", "a/link", "a/run.sh", "b/c/g", "big"}
    assert found == files
    _copy_to_dir(f"file://{source}", f"file://{tmp_path}/local")
    assert on_disk(tmp_path / "local") == {
        **expected(source),
        "out": "-> /etc/passwd",
    }


# -- archives --------------------------------------------------------------------------------------


def archive(entries: list[Entry]) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(b"".join(TarStream(entries))), mode="r:")


def test_an_archive_holds_the_tree_and_nothing_of_its_maker(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    long_name, long_target = "n" * 60 + "/" + "m" * 90, "t" * 150
    make(source, long_name, "ä/ü")
    (source / "long").symlink_to(long_target)
    (source / os.fsdecode(b"\xff")).write_text("")
    with archive(scan(str(source))) as tar:
        members = {m.name: m for m in tar.getmembers()}
        assert [*members] == [e.path for e in scan(str(source))]
        assert {(m.uid, m.gid, m.mtime, m.uname) for m in members.values()} == {(0, 0, 0, "")}
        assert members["a/run.sh"].mode == 0o755
        assert members["b/c"].isdir()
        assert members["b/c"].mode == 0o750
        assert members["a/link"].linkname == "../b/c/g"
        assert members["long"].linkname == long_target
        for name in ("big", long_name, "ä/ü", "a/f"):
            assert tar.extractfile(name).read() == (source / name).read_bytes()


def test_equal_trees_make_equal_archives(tmp_path: Path):
    first, second = (mixed_tree(tmp_path / name) for name in "ab")
    (second / "big").write_bytes((first / "big").read_bytes())
    assert [*TarStream(scan(str(first)))] == [*TarStream(scan(str(second)))]


def test_an_archive_is_read_in_any_portions(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    whole = b"".join(TarStream(scan(str(source))))
    stream = TarStream(scan(str(source)))
    portions = [stream.read(10), stream.read(0), stream.read(1_000_000), stream.read()]
    assert [len(p) for p in portions[:3]] == [10, 0, 1_000_000]
    assert b"".join(portions) == whole
    assert stream.read(5) == b""
    stream.close()


def test_an_archive_as_a_file_goes_to_any_place(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    whole = b"".join(TarStream(scan(str(source))))
    with TarFile(scan(str(source))) as file:
        assert file.seekable()
        assert file.readable()
        for place in (0, 700_000, 512, len(whole) - 5, 3):
            assert file.seek(place) == place == file.tell()
            assert file.read(1000) == whole[place : place + 1000]
        assert file.seek(-8, os.SEEK_CUR) == 1003 - 8
        assert file.seek(0, os.SEEK_END) == len(whole)
        assert file.read(1) == b""
        assert file.seek(-10, os.SEEK_END) == len(whole) - 10
        assert file.read() == whole[-10:]
        assert file.seek(1 << 40) == len(whole)


def test_a_size_above_what_octal_digits_hold_is_written(tmp_path: Path):
    entry = Entry("huge", "file", 0o644, 9 << 30, content=b"")
    stream = TarStream([entry])
    with pytest.raises(TorchXError, match="`huge` of the workspace became shorter"):
        stream.read()
    assert stream.failure is not None
    from torchx.workspace._tar import _header

    header = tarfile.TarInfo.frombuf(_header(entry), "utf-8", "strict")
    assert (header.name, header.size) == ("huge", 9 << 30)


def test_a_file_that_becomes_shorter_ends_the_archive(tmp_path: Path):
    source = make(tmp_path, "a", "b")
    entries = scan(str(source))
    (source / "b").write_text("")
    with pytest.raises(TorchXError, match="became shorter"):
        b"".join(TarStream(entries))
    entries = scan(str(source))
    (source / "a").write_text("longer than before")
    with archive(entries) as tar:
        assert tar.extractfile("a").read() == b"l"


# -- builders --------------------------------------------------------------------------------------


class JobDir(DirWorkspaceMixin):
    pass


def build(builder, *roles: Role, **cfg: object) -> list[str]:
    builder.build_workspaces([*roles], cfg)
    return [role.image for role in roles]


def role(name: str, *projects: Path) -> Role:
    return Role(name, "base", workspace=Workspace({str(p): "" for p in projects}))


def test_the_workspace_is_copied_to_the_job_dir(tmp_path: Path):
    source = mixed_tree(tmp_path / "src")
    job_dir = str(tmp_path / "job")
    assert build(JobDir(), role("r", source), job_dir=job_dir) == [job_dir]
    assert on_disk(tmp_path / "job") == expected(source)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_without_a_job_dir_nothing_is_done():
    broken = Role("r", "base", workspace=Workspace({"/no/such": ""}))
    assert build(JobDir(), broken) == build(JobDir(), broken, job_dir=None) == ["base"]
    assert build(JobDir(), Role("r", "base"), job_dir="/no/such/job") == ["base"]


@pytest.mark.parametrize("job_dir", [3, "", ["x"]])
def test_a_job_dir_that_is_no_path_is_refused(tmp_path: Path, job_dir):
    for error in (AssertionError, InvalidInput):
        with pytest.raises(error, match="`job_dir` is"):
            build(JobDir(), role("r", tmp_path), job_dir=job_dir)


def test_roles_with_one_workspace_share_it_and_others_get_folders(tmp_path: Path):
    a, b = make(tmp_path / "a", "x", "third/x"), make(tmp_path / "b", "y")
    job = tmp_path / "job"
    for _ in range(2):  # as a dry run and the run after it
        roles = [role("one", a), role("two", a), role("third", b), role("fo/ur", b, a)]
        images = build(JobDir(), *roles, job_dir=str(job))
        assert images == [str(job), str(job), f"{job}/third-2", f"{job}/fo_ur"]
        assert sorted(on_disk(job)) == [
            "fo_ur", "fo_ur/third", "fo_ur/third/x", "fo_ur/x", "fo_ur/y", "third", "third-2",
            "third-2/y", "third/x", "x",
        ]  # fmt: skip


def test_a_repeated_dry_run_takes_the_copy_that_is_there(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    job = tmp_path / "job"
    build(JobDir(), role("r", source), job_dir=str(job))
    before = (job / "f").stat().st_ino
    make(job, "a-log-of-a-job")
    build(JobDir(), role("r", source), job_dir=str(job))
    assert ((job / "f").stat().st_ino, (job / "a-log-of-a-job").exists()) == (before, True)


def test_an_unused_copy_follows_the_workspace(tmp_path: Path):
    source = make(tmp_path / "src", "f", "g")
    job = tmp_path / "job"
    build(JobDir(), role("r", source), role("s", tmp_path / "src/g"), job_dir=str(job))
    (source / "g").unlink()
    make(source, "f", "new", x="1")
    build(JobDir(), role("r", source), job_dir=str(job))
    assert sorted(on_disk(job)) == ["f", "new", "x"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job", "src"]


@pytest.mark.parametrize("added", ["log", "s/log"])
def test_a_copy_that_something_was_added_to_is_not_replaced(tmp_path: Path, added):
    source, other = make(tmp_path / "src", "f"), make(tmp_path / "other", "g")
    job = tmp_path / "job"
    build(JobDir(), role("r", source), role("s", other), job_dir=str(job))
    make(job, added)
    make(source, "new")
    for error in (FileExistsError, InvalidInput):
        with pytest.raises(error, match="is not an unchanged copy"):
            build(JobDir(), role("r", source), job_dir=str(job))
    assert (job / added).exists()


def test_a_directory_of_the_user_is_not_replaced(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    job = make(tmp_path / "job", "f")
    with pytest.raises(FileExistsError, match="remove it"):
        build(JobDir(), role("r", source), job_dir=str(job))
    assert (job / "f").read_text() == "f"
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileExistsError):
        build(JobDir(), role("r", source), job_dir=str(tmp_path / "empty"))


def inodes(root: Path) -> dict[str, int]:
    return {p.name: p.stat().st_ino for p in root.iterdir()}


def change_as_cp_p_would(file: Path) -> None:
    """Changes the content, and keeps size and time of the last change."""
    status = file.stat()
    file.write_text("2")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_copy_is_made_anew_if_content_changes_and_nothing_else(tmp_path: Path):
    source, job = make(tmp_path / "src", a="1"), tmp_path / "job"
    build(JobDir(), role("r", source), job_dir=str(job))
    change_as_cp_p_would(source / "a")
    build(JobDir(), role("r", source), job_dir=str(job))
    assert (job / "a").read_text() == "2"


def test_a_replaced_copy_hands_its_unchanged_files_on(tmp_path: Path):
    source, job = make(tmp_path / "src", "same", "d/x", a="1", b="1"), tmp_path / "job"
    build(JobDir(), role("r", source), job_dir=str(job))
    before = inodes(job)
    change_as_cp_p_would(source / "a")
    (source / "b").chmod(0o640)
    build(JobDir(), role("r", source), job_dir=str(job))
    after = inodes(job)
    assert on_disk(job) == on_disk(source)
    assert [after[n] == before[n] for n in ("same", "a", "b")] == [True, False, False]
    assert (job / "same").stat().st_nlink == (job / "d/x").stat().st_nlink == 1


def test_copies_share_only_files_that_nobody_may_write_to(tmp_path: Path):
    source = make(tmp_path / "src", "weights", "code", "gone", "edited", "d/weights")
    for name in ("weights", "gone", "edited", "d/weights"):
        (source / name).chmod(0o444)
    (source / "d").chmod(0o555)
    one, two = tmp_path / "one", tmp_path / "two"
    build(JobDir(), role("r", source), job_dir=str(one))
    (one / "log").write_text("a job ran here")
    (one / "gone").unlink()
    (one / "edited").chmod(0o644)
    (one / "edited").write_text("edited in place")
    build(JobDir(), role("r", source), job_dir=str(two))
    assert on_disk(two) == on_disk(source)
    shared = {p for p in inodes(two) if inodes(two)[p] == inodes(one).get(p)}
    assert shared == {"weights"}
    assert (two / "d/weights").samefile(one / "d/weights")
    with open(one / "code", "a") as file:
        file.write("changed by a job")
    assert on_disk(two) == on_disk(source)


@pytest.mark.parametrize("how", ["content", "replaced"])
def test_a_file_of_which_only_the_content_changed_is_not_shared(tmp_path: Path, how):
    source = make(tmp_path / "src", weights="1")
    (source / "weights").chmod(0o444)
    build(JobDir(), role("r", source), job_dir=str(tmp_path / "one"))
    status = (source / "weights").stat()
    if how == "replaced":
        (source / "weights").unlink()
    else:
        (source / "weights").chmod(0o644)
    (source / "weights").write_text("2")
    (source / "weights").chmod(0o444)
    os.utime(source / "weights", ns=(status.st_atime_ns, status.st_mtime_ns))
    build(JobDir(), role("r", source), job_dir=str(tmp_path / "two"))
    assert (tmp_path / "two/weights").read_text() == "2"
    assert (tmp_path / "one/weights").read_text() == "1"


def test_all_unchanged_files_are_linked_on_request(tmp_path: Path):
    source = make(tmp_path / "src", "same", "changed", "d/x", "spoilt")
    one, two = tmp_path / "one", tmp_path / "two"
    build(JobDir(), role("r", source), job_dir=str(one))
    (source / "changed").write_text("other")
    (one / "spoilt").write_text("by a job")
    build(JobDir(), role("r", source), job_dir=str(two), link_unchanged=True)
    for path in ("same", "d/x"):
        assert (two / path).samefile(one / path)
        assert not (two / path).samefile(source / path)
    assert (two / "changed").read_text() == "other"
    assert (two / "spoilt").read_text() == (source / "spoilt").read_text() != "by a job"


def test_where_files_cannot_be_linked_they_are_copied(tmp_path: Path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    source = make(tmp_path / "src", "weights")
    (source / "weights").chmod(0o444)
    build(JobDir(), role("r", source), job_dir=str(tmp_path / "one"))
    monkeypatch.setattr(os, "link", refuse)
    build(JobDir(), role("r", source), job_dir=str(tmp_path / "two"))
    assert on_disk(tmp_path / "two") == on_disk(source)
    assert not (tmp_path / "two/weights").samefile(tmp_path / "one/weights")


COPY_AT_ONCE = """
import fcntl, os, sys
def refuse(*_):
    raise OSError("no locks")
if sys.argv[1] == "no locks":
    fcntl.flock = refuse
from torchx.workspace._copies import place
print("ready", flush=True)
input()
place(sys.argv[2], sys.argv[3])
open(os.path.join(sys.argv[3], f"log.{os.getpid()}"), "w").close()
"""


@pytest.mark.parametrize("locks", ["locks", "no locks"])
@pytest.mark.parametrize("inside", [False, True])
def test_several_at_once_may_copy_to_one_place(tmp_path: Path, locks, inside):
    source = make(tmp_path / "src", *[f"d{i % 20}/f{i}" for i in range(400)])
    before = on_disk(source)
    job = (source if inside else tmp_path) / "job"
    command = [sys.executable, "-c", COPY_AT_ONCE, locks, str(source), str(job)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        (job / f"log.{process.pid}").unlink()
    assert on_disk(job) == before
    assert [p for p in job.parent.iterdir() if p.name.startswith(".")] == []


def test_a_job_dir_needs_a_parent_and_a_workspace(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    with pytest.raises(FileNotFoundError, match="is no directory; make it first"):
        build(JobDir(), role("r", source), job_dir=str(tmp_path / "no/job"))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        build(JobDir(), role("r", tmp_path / "gone"), job_dir=str(tmp_path / "job"))
    assert not (tmp_path / "job").exists()


def test_a_failed_copy_leaves_nothing(tmp_path: Path, large_file):
    source = large_file
    (tmp_path / "parent").mkdir()
    with pytest.raises(TorchXError, match="cannot copy the workspace"), small_files_only():
        build(JobDir(), role("r", source), job_dir=str(tmp_path / "parent/job"))
    assert list((tmp_path / "parent").iterdir()) == []


def test_copies_within_the_workspace_do_not_grow(tmp_path: Path):
    make(tmp_path, "f")
    for name in ("one", "two"):
        build(JobDir(), role("r", tmp_path), job_dir=str(tmp_path / name))
        assert sorted(on_disk(tmp_path / name)) == ["f"]


def test_the_job_dir_may_be_in_the_home(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    build(JobDir(), role("r", source), job_dir="~/job")
    assert (Path.home() / "job/f").exists()


class InTmp(TmpDirWorkspaceMixin, Scheduler[Mapping[str, object]]):
    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo(app, repr)

    def schedule(self, dryrun_info):
        return "id"

    def describe(self, app_id):
        return None

    def list(self, cfg=None):
        return []

    def _cancel_existing(self, app_id):
        pass


def test_temporary_copies_are_removed_when_the_scheduler_is_closed(tmp_path: Path):
    a, b = mixed_tree(tmp_path / "a"), make(tmp_path / "b", "y")
    scheduler = InTmp("tmp", "session")
    app = AppDef("app", [role("one", a), role("two", a), role("three", b), Role("four", "base")])
    scheduler.build_workspaces(app.roles, {})
    one, two, three, four = (r.image for r in app.roles)
    assert one == two != three
    assert four == "base"
    assert Path(one).name.startswith("torchx_workspace")
    assert on_disk(Path(one)) == expected(a)
    scheduler.close()
    scheduler.close()
    assert not Path(one).exists()
    assert not Path(three).exists()
    with pytest.raises(FileNotFoundError):
        scheduler.build_workspaces([role("r", tmp_path / "gone")], {})


def test_builders_of_single_directories_still_count(tmp_path: Path):
    class Own(TmpDirWorkspaceMixin):
        def build_workspace_and_update_role(self, role, workspace, cfg):
            role.image = f"own {sorted(os.listdir(workspace))}"

    class OwnDir(DirWorkspaceMixin):
        def build_workspace_and_update_role(self, role, workspace, cfg):
            role.image = f"own {sorted(os.listdir(workspace))}"

    a, b = make(tmp_path / "a", "x"), make(tmp_path / "b", "y")
    for builder in (Own(), OwnDir()):
        assert build(builder, role("r", a), role("s", a, b), job_dir="j") == [
            "own ['x']",
            "own ['x', 'y']",
        ]
    for builder in (TmpDirWorkspaceMixin(), JobDir()):
        single = Role("r", "base")
        cfg = {"job_dir": str(tmp_path / "single")}
        builder.build_workspace_and_update_role(single, str(a), cfg)
        assert paths(scan(single.image)) == ["x"]


def test_what_a_killed_copy_left_is_removed_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = make(tmp_path / "src", "f")
    make(tmp_path / "jobs", ".torchx-copy.0123456789abcdef/d/x", "mine")
    place(str(source), str(tmp_path / "jobs/a"))
    assert (tmp_path / "jobs/.torchx-copy.0123456789abcdef/d/x").exists()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 90_000)
    place(str(source), str(tmp_path / "jobs/b"))
    assert sorted(p.name for p in (tmp_path / "jobs").iterdir()) == ["a", "b", "mine"]


# -- many files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 8])
def test_many_files_are_copied_into_a_directory_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
):
    # only a slow file system would make it use threads
    monkeypatch.setattr("torchx._projects.copy._threads", lambda *_: threads)
    source = tmp_path / "src"
    for number in range(1200):
        folder = source / f"part{number % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_text(str(number))
    copy(scan(str(source)), str(tmp_path / "new/out"))
    copied = {p.relative_to(tmp_path / "new/out") for p in (tmp_path / "new/out").rglob("f*")}
    assert copied == {p.relative_to(source) for p in source.rglob("f*")}
    assert all(p.read_text() == p.name[1:] for p in (tmp_path / "new/out").rglob("f*"))
    (source / "part0/f0").chmod(0o640)
    (source / "part0/f0").write_text("again")
    copy(scan(str(source)), str(tmp_path / "new/out"))
    assert (tmp_path / "new/out/part0/f0").read_text() == "again"
    assert (tmp_path / "new/out/part0/f0").stat().st_mode & 0o777 == 0o640


def test_folders_are_there_whichever_thread_is_first(tmp_path: Path):
    source, out = tmp_path / "src", tmp_path / "out"
    for name in ("0", "1", "2", "3", "4", "a-0", "a-1", "a-2", "a-3", "a/0", "b/c/d/0", "b/c/d/1"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    entries = scan(str(source))
    tasks = [entries[i : i + 4] for i in range(0, len(entries), 4)]
    target = _Target(f"{out}/", 0)
    out.mkdir()
    _copy_some(tasks[0], target)
    _make_shared_folders(tasks[1:], target)
    for task in reversed(tasks[1:]):
        _copy_some(task, target)
    assert paths(scan(str(out))) == paths(entries)


def test_threads_are_many_only_where_they_wait():
    assert _threads(0.007, 0.005) == 1
    assert _threads(0.008, 0.005) == 2
    assert _threads(0.020, 0.005) == 4
    assert _threads(1.0, 0.005) == 8
    assert _threads(0.0, 0.0) == 1
