"""What a workspace contains."""

import logging
import os
import socket
import tempfile
from pathlib import Path

import fsspec
import pytest

from tests.unit.workspace.trees import ignore, make, paths
from torchx._projects.entry import announce, open_entry, size_text, summary
from torchx._projects.tree import scan, scan_all
from torchx.errors import InvalidInput, TorchXError
from torchx.specs import Workspace


def test_entries_are_sorted_and_folders_stand_before_their_content(tmp_path: Path):
    make(tmp_path, "b", "a/z", "a/b/c", "a-b", "empty/")
    assert paths(scan(str(tmp_path))) == [
        "a/", "a-b", "a/b/", "a/b/c", "a/z", "b", "empty/"
    ]  # fmt: skip


def test_entries_tell_modes_sizes_and_content(tmp_path: Path):
    make(tmp_path, "run.sh")
    (tmp_path / "run.sh").chmod(0o751)
    (entry,) = scan(str(tmp_path))
    assert (entry.path, entry.kind, entry.mode, entry.size) == ("run.sh", "file", 0o751, 6)
    assert entry.source == str(tmp_path / "run.sh")
    with open_entry(entry) as file:
        assert file.read() == b"run.sh"
    assert summary([entry]) == (1, 6)


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/", "{}/../{name}"])
def test_a_workspace_is_named_in_several_ways(tmp_path: Path, form):
    make(tmp_path, "f")
    assert paths(scan(form.format(tmp_path, name=tmp_path.name))) == ["f"]


def test_the_home_and_the_current_directory_are_known(monkeypatch: pytest.MonkeyPatch):
    make(Path.home() / "proj", "f")
    assert paths(scan("~/proj")) == ["f"]
    monkeypatch.chdir(Path.home() / "proj")
    assert paths(scan(".")) == paths(scan("file://.")) == ["f"]


def test_torchxignore_is_used_instead_of_dockerignore(tmp_path: Path):
    make(tmp_path, "a", "b")
    ignore(tmp_path, "a", ".dockerignore")
    assert paths(scan(str(tmp_path))) == [".dockerignore", "b"]
    ignore(tmp_path, "b\n.*")
    assert paths(scan(str(tmp_path))) == ["a"]


def test_only_the_ignore_file_in_the_root_counts(tmp_path: Path):
    make(tmp_path, "sub/a")
    ignore(tmp_path / "sub", "a")
    assert paths(scan(str(tmp_path))) == ["sub/", "sub/.torchxignore", "sub/a"]


def test_an_ignored_folder_is_there_if_something_in_it_is(tmp_path: Path):
    make(tmp_path, "a/b/keep", "a/b/other", "a/c/x", "d/e/x")
    ignore(tmp_path, "*\n!a/b/keep\n!d/e/none")
    assert paths(scan(str(tmp_path))) == ["a/", "a/b/", "a/b/keep"]


def test_the_dockerfile_of_torchx_is_never_ignored(tmp_path: Path):
    make(tmp_path, "Dockerfile.torchx", "sub/Dockerfile.torchx", "x")
    ignore(tmp_path, "**")
    assert paths(scan(str(tmp_path))) == ["Dockerfile.torchx"]


SKIPPED = [
    ".git/HEAD",
    "sub/.git",
    "a/__pycache__/x.pyc",
    ".torchx/jobs/1",
    "v/pyvenv.cfg",
    "v/bin/x",
    "a/conda/conda-meta/history",
    "a/conda/bin/x",
]


def test_what_no_job_needs_is_left_out(tmp_path: Path):
    make(tmp_path, ".gitignore", ".torchxslurmjobdirs", "a/x.py", *SKIPPED)
    assert paths(scan(str(tmp_path))) == [".gitignore", "a/", "a/x.py", "sub/"]
    assert summary(scan(str(tmp_path), skip_default=False))[0] == 11


def test_the_home_of_torchx_is_left_out_under_any_name(tmp_path: Path, monkeypatch):
    make(tmp_path, "f", "state/jobs/1")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "state"))
    assert paths(scan(str(tmp_path))) == ["f"]


def test_what_is_left_out_goes_along_if_its_name_is_asked_for(tmp_path: Path):
    make(tmp_path, ".git/HEAD", ".git/config", "sub/.git", "v/pyvenv.cfg", "__pycache__/x")
    ignore(tmp_path, ".torchxignore\n!.git/HEAD\n!v\n!*")
    # the last line asks for no name
    assert paths(scan(str(tmp_path))) == [
        ".git/", ".git/HEAD", ".torchxignore", "sub/", "v/", "v/pyvenv.cfg"
    ]  # fmt: skip
    ignore(tmp_path, "!**/.git")
    assert {".git/config", "sub/.git"} <= set(paths(scan(str(tmp_path))))


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        ("config/**\n!config/env/prod.yaml", []),
        ("!tools/env", ["tools/env"]),
        ("!**/env", ["env", "other/env", "tools/env"]),
        ("!env\n!tools/*", ["env"]),
        ("**/env\n!other/env", ["other/env"]),
        ("!other\n!**/e*", []),
    ],
)
def test_a_virtual_environment_goes_along_if_its_path_is_asked_for(
    tmp_path: Path, mark, lines, sent
):
    for env in ("env", "other/env", "tools/env"):
        make(tmp_path, f"{env}/{mark}", f"{env}/lib/x")
    make(tmp_path, "config/env/prod.yaml")
    ignore(tmp_path, lines)
    url = f"memory://{tmp_path}"
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path), str(tmp_path), recursive=True)
    for workspace in (str(tmp_path), url):
        found = [e.path for e in scan(workspace)]
        assert [p.removesuffix("/lib/x") for p in found if p.endswith("/lib/x")] == sent
        assert ("config/env/prod.yaml" in found) == (lines[:2] != "**")


def test_a_part_of_a_virtual_environment_can_be_asked_for(tmp_path: Path):
    make(tmp_path, "a[1]/env/pyvenv.cfg", "a[1]/env/bin/x", "a[1]/env/bin/y", "a1/env/pyvenv.cfg")
    ignore(tmp_path, ".*\n!a?1?/env/bin/x")
    assert paths(scan(str(tmp_path))) == [
        "a1/",
        "a[1]/",
        "a[1]/env/",
        "a[1]/env/bin/",
        "a[1]/env/bin/x",
    ]


def test_a_workspace_that_is_a_virtual_environment_was_asked_for(tmp_path: Path):
    make(tmp_path, "pyvenv.cfg", "f")
    assert paths(scan(str(tmp_path))) == ["f", "pyvenv.cfg"]


# -- links -----------------------------------------------------------------------------------------


def test_links_within_the_workspace_are_kept_and_made_relative(tmp_path: Path, caplog):
    root = make(tmp_path / "w", "a/f", "b/")
    (root / "b/rel").symlink_to("../a/f")
    (root / "b/abs").symlink_to(root / "a/f")
    (root / "folder").symlink_to("a")
    (root / "loop").symlink_to(".")
    (root / "gone").symlink_to("nowhere")
    assert paths(scan(str(root))) == [
        "a/", "a/f", "b/", "b/abs -> ../a/f", "b/rel -> ../a/f", "folder -> a", "gone -> nowhere",
        "loop -> .",
    ]  # fmt: skip
    assert not caplog.records


def test_links_that_leave_the_workspace_are_kept_unread_and_warned_of(tmp_path: Path, caplog):
    root = make(tmp_path / "w", "a/f")
    make(tmp_path / "w2", "secret")
    (root / "a/out").symlink_to("../../w2")
    (root / "up").symlink_to("..")
    (root / "abs").symlink_to("/etc/passwd")
    assert [p for p in paths(scan(str(root))) if "->" in p] == [
        f"a/out -> {tmp_path}/w2",
        "abs -> /etc/passwd",
        f"up -> {tmp_path}",
    ]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"`a/out` -> `{tmp_path}/w2`" in record.getMessage()
    ignore(root, "**/out\nup\nabs")
    caplog.clear()
    scan(str(root))
    assert not caplog.records


def test_a_link_to_a_workspace_is_followed(tmp_path: Path):
    make(tmp_path / "w", "f")
    (tmp_path / "link").symlink_to("w")
    assert paths(scan(str(tmp_path / "link"))) == ["f"]


def test_a_file_that_became_a_link_is_not_read(tmp_path: Path):
    root = make(tmp_path / "w", "f")
    (entry,) = scan(str(root))
    (root / "f").unlink()
    (root / "f").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="cannot read"):
        open_entry(entry)


# -- several projects ------------------------------------------------------------------------------


def test_projects_go_to_their_places_and_the_later_one_wins(tmp_path: Path):
    a = make(tmp_path / "a", "x.py", "lib/y.py", same="a")
    b = make(tmp_path / "b", "y.py", "z.py", same="b")
    one = make(tmp_path, "one.txt") / "one.txt"
    entries = scan(
        Workspace({str(a): "", str(b): "lib/", str(one): "lib", f"{one.parent}/./one.txt": "two"})
    )
    assert paths(entries) == [
        "lib/", "lib/one.txt", "lib/same", "lib/y.py", "lib/z.py", "same", "two", "x.py"
    ]  # fmt: skip
    by_path = {e.path: e for e in entries}
    assert by_path["lib/y.py"].source == str(b / "y.py")
    assert paths(scan(Workspace({str(b): "p/q"})))[:2] == ["p/", "p/q/"]


def test_each_project_has_its_own_ignore_file(tmp_path: Path):
    a, b = make(tmp_path / "a", "x", "y"), make(tmp_path / "b", "x", "y")
    ignore(a, "x\n.*")
    ignore(b, "y\n.*")
    assert paths(scan(Workspace({str(a): "", str(b): "b"}))) == ["b/", "b/x", "y"]


def test_projects_that_disagree_are_refused(tmp_path: Path):
    a, b = make(tmp_path / "a", "x"), make(tmp_path / "b", "x/y")
    with pytest.raises(InvalidInput, match="disagree about `x`: it is a file in one and a dir"):
        scan(Workspace({str(a): "", str(b): ""}))


@pytest.mark.parametrize("target", ["/abs", "..", "a/../../b"])
def test_a_place_outside_of_the_root_is_refused(tmp_path: Path, target):
    with pytest.raises(InvalidInput, match="not below the job's root"):
        scan(Workspace({str(tmp_path): target}))


# -- other file systems ----------------------------------------------------------------------------


def test_a_workspace_in_memory_follows_the_same_rules():
    fs = fsspec.filesystem("memory")
    fs.pipe(
        {
            "/mem-ws/a/f.py": b"code",
            "/mem-ws/a/x.log": b"",
            "/mem-ws/.git/HEAD": b"",
            "/mem-ws/v/pyvenv.cfg": b"",
            "/mem-ws/.torchxignore": b"**/*.log\n.torchxignore\n",
            "/mem-ws/b/c/keep": b"",
        }
    )
    entries = scan("memory://mem-ws")
    assert paths(entries) == ["a/", "a/f.py", "b/", "b/c/", "b/c/keep"]
    assert [(e.mode, e.size) for e in entries[:2]] == [(0o755, 0), (0o644, 4)]
    with open_entry(entries[1]) as file:
        assert file.read() == b"code"
    assert paths(scan(Workspace({"memory://mem-ws/a/f.py": "to"}))) == ["to"]
    fs.pipe("/mem-ws/.torchxignore", b"*\n!b/c/keep")
    assert paths(scan("memory://mem-ws/")) == ["b/", "b/c/", "b/c/keep"]
    with pytest.raises(FileNotFoundError, match="`memory://mem-gone` does not exist"):
        scan("memory://mem-gone")
    with pytest.raises(InvalidInput, match="not a path or a URL"):
        scan("nosuchkind://x")


# -- bad input -------------------------------------------------------------------------------------


def test_a_workspace_that_does_not_exist_is_an_error(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not exist") as error:
        scan(str(tmp_path / "gone"))
    assert isinstance(error.value, FileNotFoundError)
    with pytest.raises(InvalidInput, match="does not exist"):
        scan(str(make(tmp_path, "f") / "f/below"))


def test_a_socket_or_a_pipe_is_refused_by_name_unless_ignored():
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")  # the paths of sockets are short
        with pytest.raises(InvalidInput, match=r"/s` in the workspace is a socket"):
            scan(folder)
        ignore(Path(folder), "s\nf")
        os.mkfifo(f"{folder}/f")
        assert paths(scan(folder)) == [".torchxignore"]
        ignore(Path(folder), "s")
        with pytest.raises(InvalidInput, match="is a named pipe"):
            scan(folder)
        with pytest.raises(InvalidInput, match="is a socket"):
            scan(f"{folder}/s")


def test_a_bad_ignore_file_is_named(tmp_path: Path):
    ignore(tmp_path, "ok\n[a")
    with pytest.raises(InvalidInput, match=r"line 2 of `.*/\.torchxignore`"):
        scan(str(tmp_path))
    (tmp_path / ".torchxignore").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="is not UTF-8"):
        scan(str(tmp_path))
    (tmp_path / ".torchxignore").unlink()
    (tmp_path / ".torchxignore").mkdir()
    with pytest.raises(TorchXError, match="cannot read"):
        scan(str(tmp_path))


def test_a_file_of_many_gigabytes_is_refused_unless_asked_for(tmp_path: Path, caplog):
    with (tmp_path / "big.pt").open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(InvalidInput, match=r"`big.pt` of the workspace has 5.0 GiB"):
        scan(str(tmp_path))
    ignore(tmp_path, "!big.pt")
    entries = scan(str(tmp_path))
    announce(entries, "w")
    assert "the workspace `w` holds 5.0 GiB" in caplog.text
    assert "`big.pt` (5.0 GiB)" in caplog.text
    # a copy of it is looked at later
    assert "big.pt" in paths(scan_all(str(tmp_path), lambda path: False))
    ignore(tmp_path, "*.pt")
    assert paths(scan(str(tmp_path))) == [".torchxignore"]


@pytest.mark.parametrize("used", [".torchxignore", ".dockerignore", None])
def test_the_advice_about_a_file_is_for_the_ignore_file_in_use(tmp_path: Path, used):
    make(tmp_path, "secrets", "sub/")
    hidden = used is not None
    if used:
        ignore(tmp_path, "secrets", used)
    name = "#b[1]*.pt"
    for place, path, line in (
        (tmp_path, f"lib/{name}", r"\#b\[1\]\*.pt"),
        (tmp_path / "sub", f"lib/sub/{name}", r"sub/#b\[1\]\*.pt"),
    ):
        with (place / name).open("wb") as file:
            file.truncate(5 << 30)
        workspace = Workspace({str(tmp_path): "lib"})
        with pytest.raises(InvalidInput) as error:
            scan(workspace)
        assert f"`{path}` of the workspace has 5.0 GiB" in str(error.value)
        written = tmp_path / (used or ".torchxignore")
        assert f"add the line `{line}` to `{written}` to leave" in str(error.value)
        assert f"or `!{line}` to send it" in str(error.value)
        before = written.read_text() if used else ""
        written.write_text(f"{before}\n!{line}")
        assert path in [e.path for e in scan(workspace)]
        written.write_text(f"{before}\n{line}")
        assert path not in [e.path for e in scan(workspace)]
        assert ("lib/secrets" in [e.path for e in scan(workspace)]) == (not hidden)
        used = written.name


def test_the_advice_about_a_pipe_is_for_the_ignore_file_in_use(tmp_path: Path):
    ignore(make(tmp_path, "sub/"), "x", ".dockerignore")
    os.mkfifo(tmp_path / "sub/f")
    with pytest.raises(InvalidInput, match=r"the line `sub/f` in `.*/\.dockerignore`"):
        scan(Workspace({str(tmp_path): "lib"}))
    with pytest.raises(InvalidInput, match=r"is a named pipe.*; give a directory or a file"):
        scan(str(tmp_path / "sub/f"))


def test_a_name_that_is_asked_for_is_not_asked_for_elsewhere(tmp_path: Path):
    with (make(tmp_path, "sub/big.pt", "other/") / "other/big.pt").open("wb") as file:
        file.truncate(5 << 30)
    ignore(tmp_path, "!sub/big.pt")
    with pytest.raises(InvalidInput, match=r"`other/big.pt` of the workspace has"):
        scan(str(tmp_path))


def test_how_much_goes_is_said(tmp_path: Path, caplog):
    make(tmp_path, "a", "b")
    with caplog.at_level(logging.INFO):
        announce(scan(str(tmp_path)), "w")
    assert [r.getMessage() for r in caplog.records] == ["sending 2 files, 2 B of workspace `w`"]
    assert size_text(3 << 40) == "3,072.0 GiB"


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    make(tmp_path, "a")
    (entry,) = scan(str(tmp_path))
    (tmp_path / "a").unlink()
    with pytest.raises(TorchXError, match="was there a moment ago and is gone"):
        open_entry(entry)


def test_names_that_are_not_unicode_are_kept(tmp_path: Path):
    (tmp_path / os.fsdecode(b"\xff\n x")).write_text("1")
    (entry,) = scan(str(tmp_path))
    assert os.fsencode(entry.path) == b"\xff\n x"
    with open_entry(entry) as file:
        assert file.read() == b"1"
