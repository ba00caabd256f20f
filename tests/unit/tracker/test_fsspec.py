"""The fsspec backend: its layout, its config, and writers that meet."""

import json
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from torchx.tracker.api import Lineage, TrackerArtifact, TrackerSource
from torchx.tracker.backend import fsspec as backend
from torchx.tracker.backend._files import LocalFiles, RemoteFiles, generate_filename
from torchx.tracker.backend.fsspec import FsspecTracker, create

RUN = "local_cwd://torchx/a"
ENCODED = "NRXWGYLML5RXOZB2F4XXI33SMNUHQL3B"


@pytest.fixture(params=["local", "remote"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FsspecTracker]:
    """On local files by both ways of writing them, which must give the same layout."""
    root = tmp_path / "runs"
    root.mkdir()
    made = FsspecTracker(fsspec.filesystem("file"), str(root))
    assert isinstance(made._files, LocalFiles)
    if request.param == "remote":
        made._files = RemoteFiles(fsspec.filesystem("file"))
    return made


def files(tracker: FsspecTracker) -> dict[str, str]:
    root = Path(tracker._path_builder.root_dir)
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_the_layout_is_that_of_the_published_format(tracker: FsspecTracker) -> None:
    tracker.add_metadata(RUN, lr=0.1)
    tracker.add_artifact(RUN, "m", "~/logs", {"k": 1})
    tracker.add_artifact(RUN, "n", "/p")
    tracker.add_source(RUN, "ext", "ds")
    tracker.add_source(RUN, "bare")
    found = files(tracker)
    lines = [name for name in found if "/sources.lines/" in name]
    assert len(lines) == (2 if isinstance(tracker._files, RemoteFiles) else 0)
    names = sorted(found.keys() - set(lines))
    assert {name.rsplit("/", 1)[0] for name in names} == {
        f"{ENCODED}/metadata",
        f"{ENCODED}/artifacts",
        f"{ENCODED}/sources",
    }
    by_part = {
        part: [v for k, v in found.items() if f"/{part}/" in k]
        for part in ("metadata", "artifacts")
    }
    assert [json.loads(text) for text in by_part["metadata"]] == [{"metadata": {"lr": 0.1}}]
    assert [json.loads(text) for text in by_part["artifacts"]] == [
        {"name": "m", "path": "~/logs", "metadata": {"k": 1}},
        {"name": "n", "path": "/p", "metadata": None},
    ]
    assert found[f"{ENCODED}/sources/MV4HI==="] == "ds\n"
    assert found[f"{ENCODED}/sources/MJQXEZI="] == "\n"
    stamps = [Path(name).name.split("-")[0] for name in names if "/sources/" not in name]
    assert all(stamp.isdecimal() for stamp in stamps)


def test_local_files_have_nothing_but_the_time_in_their_names(tmp_path: Path) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    tracker.add_metadata("r", a=1)
    (name,) = os.listdir(tmp_path / backend._encode("r") / "metadata")
    assert name.isdecimal()


@given(st.text(st.characters(max_codepoint=127), min_size=1))
def test_ids_survive_encoding(text: str) -> None:
    assert backend._decode(backend._encode(text)) == text


def test_ids_are_ascii(tracker: FsspecTracker) -> None:
    assert backend._encode(RUN) == ENCODED
    with pytest.raises(UnicodeEncodeError):
        tracker.add_metadata("ü", a=1)


def test_metadata_is_the_union_and_the_latest_wins(tracker: FsspecTracker) -> None:
    tracker.add_metadata(RUN, k1="v1", k2=2)
    tracker.add_metadata(RUN, k2=3, k3=None, k4=[1, {"a": 0.5}])
    assert tracker.metadata(RUN) == {"k1": "v1", "k2": 3, "k3": None, "k4": [1, {"a": 0.5}]}
    assert tracker.metadata("unknown") == {}


def test_the_latest_of_many_wins(tracker: FsspecTracker) -> None:
    for i in range(200):
        tracker.add_metadata(RUN, k=i)
        tracker.add_artifact(RUN, "a", f"/{i}")
    assert tracker.metadata(RUN) == {"k": 199}
    assert tracker.artifacts(RUN)["a"].path == "/199"


def test_a_value_that_json_does_not_know_is_refused_and_leaves_nothing(
    tracker: FsspecTracker,
) -> None:
    with pytest.raises(TypeError):
        tracker.add_metadata(RUN, k=object())
    assert files(tracker) == {}


def test_artifacts_are_kept_by_name(tracker: FsspecTracker) -> None:
    tracker.add_artifact(RUN, "m", "/old")
    tracker.add_artifact(RUN, "m", "/new", {"k": 1})
    assert tracker.artifacts(RUN) == {"m": TrackerArtifact("m", "/new", {"k": 1})}
    assert tracker.artifacts("unknown") == {}


def test_linking_twice_gives_one_source(tracker: FsspecTracker) -> None:
    tracker.add_source(RUN, "s")
    tracker.add_source(RUN, "s")
    assert list(tracker.sources(RUN)) == [TrackerSource("s", None)]


def test_artifacts_of_a_source_add_up(tracker: FsspecTracker) -> None:
    tracker.add_source(RUN, "s", "a")
    tracker.add_source(RUN, "s", "b")
    tracker.add_source(RUN, "s")
    assert list(tracker.sources(RUN)) == [
        TrackerSource("s", "a"),
        TrackerSource("s", "b"),
        TrackerSource("s", None),
    ]
    assert list(tracker.sources(RUN, "b")) == [TrackerSource("s", "b")]
    assert list(tracker.sources(RUN, "c")) == []
    assert list(tracker.sources("unknown")) == []


def test_a_name_with_a_line_break_is_refused(tracker: FsspecTracker) -> None:
    with pytest.raises(ValueError, match="one line"):
        tracker.add_source(RUN, "s", "a\nb")
    assert files(tracker) == {}


@pytest.mark.timeout(10)
def test_blanks_around_a_name_do_not_count(tracker: FsspecTracker) -> None:
    for name in (" b", "b\t", " b"):
        tracker.add_source(RUN, "s", name)
    tracker.add_source(RUN, "s", "  ")
    assert list(tracker.sources(RUN)) == [TrackerSource("s", "b"), TrackerSource("s", None)]
    assert list(tracker.sources(RUN, " b")) == [TrackerSource("s", "b")]
    assert files(tracker)[f"{ENCODED}/sources/OM======"] == "b\n\n"


def test_lineage_goes_both_ways(tracker: FsspecTracker) -> None:
    tracker.add_metadata("parent", a=1)
    tracker.add_source("child", "parent", "model")
    tracker.add_source("child", "not tracked here")
    assert tracker.lineage("parent") == Lineage([], [TrackerSource("child", "model")])
    assert tracker.lineage("child").descendants == []
    assert len(tracker.lineage("child").sources) == 2
    assert sorted(tracker.run_ids()) == ["child", "parent"]
    assert tracker.run_ids(parent_run_id="parent") == ["child"]
    assert tracker.run_ids(parent_run_id="nobody") == []


def test_what_others_left_is_told_and_not_fatal(
    tracker: FsspecTracker, caplog: pytest.LogCaptureFixture
) -> None:
    tracker.add_metadata(RUN, k=1)
    tracker.add_artifact(RUN, "m", "/p")
    tracker.add_source(RUN, "s")
    root = Path(tracker._path_builder.root_dir)
    (root / "a foreign folder").mkdir()
    (root / "a file").write_text("x")
    (root / ENCODED / "metadata" / "1").write_text('{"metadata": {"half"')
    (root / ENCODED / "metadata" / "2").write_text("[]")
    (root / ENCODED / "metadata" / "3").write_text("[" * 100_000)
    os.mkfifo(root / ENCODED / "metadata" / "4")
    (root / ENCODED / "artifacts" / "notes.txt").write_text("{}")
    (root / ENCODED / "artifacts" / "5").write_text('{"name": ["l"], "path": "", "metadata": null}')
    (root / ENCODED / "artifacts" / "6").write_text('{"name": "n", "path": 1, "metadata": null}')
    (root / ENCODED / "artifacts" / "7").write_text('{"name": "n", "path": "", "metadata": [1]}')
    os.mkfifo(root / ENCODED / "sources" / backend._encode("pipe"))
    (root / ENCODED / "sources" / "README").write_text("x")
    assert tracker.metadata(RUN) == {"k": 1}
    assert list(tracker.artifacts(RUN)) == ["m"]
    assert list(tracker.sources(RUN)) == [TrackerSource("s", None)]
    assert tracker.run_ids() == [RUN]
    for told in (
        "a foreign folder",
        "metadata/1",
        "metadata/2",
        "metadata/3",
        "notes.txt",
        "README",
    ):
        assert told in caplog.text
    for name in ("5", "6", "7"):
        assert f"artifacts/{name}" in caplog.text


def test_the_root_must_exist(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no_such_root"):
        FsspecTracker(fsspec.filesystem("file"), str(tmp_path / "no_such_root"))


def test_a_root_that_vanishes_has_no_runs(tracker: FsspecTracker) -> None:
    os.rmdir(tracker._path_builder.root_dir)
    assert tracker.run_ids() == []


def test_how_it_shows_itself(tmp_path: Path) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    assert repr(tracker) == f"<FsspecTracker: root_path={tmp_path}>"


def test_other_file_systems_work_too() -> None:
    fs = fsspec.filesystem("memory")
    fs.makedirs("/trk/runs", exist_ok=True)
    tracker = FsspecTracker(fs, "memory://trk/runs")
    tracker.add_metadata("p", a=1)
    tracker.add_source("c", "p", "x")
    tracker.add_source("c", "p", "y")
    assert tracker.metadata("p") == {"a": 1}
    assert tracker.run_ids(parent_run_id="p") == ["c"]
    assert [s.artifact_name for s in tracker.sources("c")] == ["x", "y"]
    assert tracker.lineage("p").descendants == [TrackerSource("c", "x"), TrackerSource("c", "y")]
    fs.rm("/trk", recursive=True)


def test_names_of_files_only_grow() -> None:
    names = [int(generate_filename()) for _ in range(1000)]
    assert names == sorted(set(names))


def _write(root: str, worker: int, count: int) -> None:
    tracker = FsspecTracker(fsspec.filesystem("file"), root)
    for i in range(count):
        tracker.add_metadata("run", **{f"k{worker}_{i}": i})
        tracker.add_artifact("run", f"a{worker}_{i}", "/p")
        tracker.add_source("run", "source", f"s{worker}_{i}")


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    writers, count = 8, 50
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_write, args=(str(tmp_path), worker, count))
        for worker in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    assert len(tracker.metadata("run")) == writers * count
    assert len(tracker.artifacts("run")) == writers * count
    assert len({s.artifact_name for s in tracker.sources("run")}) == writers * count
    assert list(tmp_path.rglob("*.tmp")) == []


class SlowStore(MemoryFileSystem):
    """Objects in memory that take their time, so that writers come between each other."""

    protocol = "slow"

    def cat_file(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(random.random() * 0.02)
        return super().cat_file(*args, **kwargs)

    def pipe_file(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(random.random() * 0.02)
        return super().pipe_file(*args, **kwargs)


def test_writers_at_once_lose_nothing_where_there_are_no_locks() -> None:
    store = SlowStore()
    store.makedirs("/slow", exist_ok=True)
    tracker = FsspecTracker(store, "/slow")
    tracker.add_metadata("source", k=1)
    runs, writers = 5, 8
    try:
        for run in range(runs):
            barrier = threading.Barrier(writers)

            def add(rank: int, run: int = run, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                tracker.add_source(f"run{run}", "source", f"rank{rank}")

            with ThreadPoolExecutor(writers) as pool:
                list(pool.map(add, range(writers)))
        everything = {f"rank{rank}" for rank in range(writers)}
        for run in range(runs):
            assert {s.artifact_name for s in tracker.sources(f"run{run}")} == everything
        assert len(tracker.lineage("source").descendants) == runs * writers
    finally:
        store.rm("/slow", recursive=True)


# -- config -----------------------------------------------------------------------------------


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "trk.conf"
    path.write_bytes(text.encode())
    return str(path)


def test_the_config_is_keys_and_values(tmp_path: Path) -> None:
    text = (
        "# comment\nprotocol=file\n no equals \n=nothing\n a . b =x = y \n"
        "empty=\nclient_kwargs.endpoint_url=http://h:1\nclient_kwargs.deep.er=1\nlast="
    )
    path = config(tmp_path, text.replace(" a . b ", " a.b "))
    assert backend._read_config(path) == {
        "protocol": "file",
        "a": {"b": "x = y"},
        "empty": "",
        "client_kwargs": {"endpoint_url": "http://h:1", "deep": {"er": "1"}},
    }


@pytest.mark.parametrize("text", ["a.=1\n", "a=1\na.b=2\n", ".a=1\n"])
def test_keys_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"trk\.conf"):
        backend._read_config(config(tmp_path, text))


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_config_makes_a_tracker(tmp_path: Path, prefix: str) -> None:
    path = config(tmp_path, f"protocol=file\nroot_path={tmp_path}\nauto_mkdir=True\n")
    tracker = create(prefix + path)
    assert isinstance(tracker, FsspecTracker)
    assert tracker._path_builder.root_dir == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "missing"), [("protocol=file\n", "root_path"), ("", "protocol, root_path")]
)
def test_a_config_that_lacks_something_is_refused(tmp_path: Path, text: str, missing: str) -> None:
    with pytest.raises(ValueError, match=rf"trk\.conf` lacks {missing}"):
        create(config(tmp_path, text))


def test_an_unknown_file_system_is_named_with_the_config(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trk\.conf`: the file system `nope` cannot be used"):
        create(config(tmp_path, f"protocol=nope\nroot_path={tmp_path}\n"))


def test_a_config_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a config file"):
        create(None)
    with pytest.raises(FileNotFoundError, match=r"no\.conf"):
        create(str(tmp_path / "no.conf"))
    with pytest.raises(ValueError, match="is a folder"):
        create(str(tmp_path))
    with pytest.raises(AssertionError, match="no_root"):
        create(config(tmp_path, f"protocol=file\nroot_path={tmp_path}/no_root\n"))
