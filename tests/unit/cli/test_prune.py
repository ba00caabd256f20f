"""``torchx prune``, and the limit of records that holds by itself."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers.local_scheduler._prune import compact, find, keep_to_limit, kept_jobs
from torchx.schedulers.local_scheduler._store import Store

Torchx = Callable[..., Any]
DAY_NS = 86_400_000_000_000


def finished(store: Store, app_id: str, ended_ns: int) -> None:
    """A job that ended, with a log of ours."""
    log_dir = os.path.join(store.home, "logs", "torchx", app_id)
    os.makedirs(log_dir)
    Path(log_dir, "stdout.log").write_text("x" * 1000)
    data = {
        "name": "job",
        "session": "torchx",
        "host": "here",
        "log_dir": log_dir,
        "own_logs": True,
        "created_ns": ended_ns - 1,
        "grace_s": 1,
        "roles": [],
    }
    _, lock = store.create(app_id, data)
    os.close(lock)
    journal = f'["state", {ended_ns}, "SUCCEEDED", ""]\n'
    Path(store.job_dir(app_id), "journal").write_text(journal)
    record = store.read(app_id)
    assert record is not None
    store.finish(record, "SUCCEEDED", ended_ns)


def ids(store: Store) -> set[str]:
    return {row[0] for row in store.finished()}


def test_old_jobs_go_with_their_logs_and_young_ones_stay(torchx: Torchx) -> None:
    store, now = Store(), time.time_ns()
    finished(store, "old-1", now - 10 * DAY_NS)
    finished(store, "young-1", now - DAY_NS)
    stray = Path(store.home, "logs", "torchx", "stray-1")
    stray.mkdir(parents=True)
    (stray / "stdout.log").write_text("y" * 500)
    os.utime(stray, ns=(now - 10 * DAY_NS, now - 10 * DAY_NS))
    shown = json.loads(torchx("prune", "--dryrun", "--json").out)
    assert shown["jobs"] == ["old-1"]
    assert shown["stray_logs"] == [str(stray)]
    assert shown["bytes"] > 1500
    assert shown["removed"] is False
    assert ids(store) == {"old-1", "young-1"}
    done = torchx("prune", "--yes")
    assert done.code == 0
    assert "removed 1 job, 1 folder of stray logs (" in done.err
    assert ids(store) == {"young-1"}
    assert not stray.exists()
    assert not Path(store.home, "logs", "torchx", "old-1").exists()
    assert "nothing to remove" in torchx("prune", "--yes").err


def test_a_job_that_runs_stays_whatever_is_asked_for(
    torchx: Torchx, component_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(component_file.parent)
    handle = torchx("run", "--detach", "jobs.py:sh", "--cmd", "sleep 60").out.strip()
    torchx("run", "jobs.py:sh", "--cmd", "true")
    done = torchx("prune", "--older-than", "0s", "--yes", "--json")
    assert len(json.loads(done.out)["jobs"]) == 1
    assert torchx("status", handle).code == 0
    torchx("delete", handle)


def test_so_many_of_the_latest_can_be_kept(torchx: Torchx) -> None:
    store, now = Store(), time.time_ns()
    for number in range(4):
        finished(store, f"job-{number}", now - (20 - number) * DAY_NS)
    assert torchx("prune", "--keep", "2", "--yes").code == 0
    assert ids(store) == {"job-2", "job-3"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give `--yes`"),
        (["--older-than", "long"], "`long` is not a time"),
        (["--keep", "few"], "`few` is not a number"),
    ],
)
def test_bad_input_of_prune(torchx: Torchx, words: list[str], told: str) -> None:
    store = Store()
    finished(store, "old-1", time.time_ns() - 10 * DAY_NS)
    done = torchx("prune", *words)
    assert done.code == 2
    assert told in done.err
    assert ids(store) == {"old-1"}


def test_the_limit_spares_what_ended_less_than_a_day_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_KEEP_JOBS", "3")
    store, now = Store(), time.time_ns()
    for number in range(6):
        finished(store, f"old-{number}-xxxxxxxxxxxxxxxxxxxxx", now - (20 - number) * DAY_NS)
    for number in range(4):
        finished(store, f"new-{number}-xxxxxxxxxxxxxxxxxxxxx", now)
    assert keep_to_limit(store) == 6
    assert {name[:3] for name in ids(store)} == {"new"}
    assert len(ids(store)) == 4
    assert keep_to_limit(store) == 0


@pytest.mark.parametrize(("value", "limit"), [("", 1000), ("7", 7), ("0", 0), ("many", 1000)])
def test_the_limit_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, limit: int
) -> None:
    monkeypatch.setenv("TORCHX_KEEP_JOBS", value)
    assert kept_jobs() == limit


def test_a_launch_keeps_to_the_limit(torchx: Torchx, component_file: Path) -> None:
    store = Store()
    for number in range(5):
        finished(store, f"old-{number}-xxxxxxxxxxxxxxxxxxxxx", 10 * DAY_NS)
    env = {"TORCHX_KEEP_JOBS": "2"}
    started = torchx("run", f"{component_file}:sh", "--cmd", "true", env=env)
    assert started.code == 0
    assert len(ids(store)) in (2, 3)  # the new one may have ended by then
    assert "old-3-xxxxxxxxxxxxxxxxxxxxx" not in ids(store) or len(ids(store)) == 3


def test_an_index_of_jobs_that_are_gone_is_written_anew() -> None:
    store, now = Store(), time.time_ns()
    for number in range(3):
        finished(store, f"job-{number}", now - DAY_NS)
    index = Path(store.home, "index")
    gone = "".join(
        f"gone-{n}\ts\tSUCCEEDED\t1\t2\tgone\ngone-{n}\t\t-\t0\t0\t\n" for n in range(200)
    )
    kept = index.read_text().splitlines(keepends=True)
    # one that another process listed while it was written is listed again
    index.write_text("".join(kept[:2]) + gone)
    compact(store)
    assert ids(store) == {"job-0", "job-1", "job-2"}
    assert len(index.read_text().splitlines()) == 3
    assert find(store, now) != []


def test_a_record_that_somebody_removed_is_listed_no_longer(torchx: Torchx) -> None:
    store = Store()
    finished(store, "old-1", time.time_ns() - 10 * DAY_NS)
    shutil.rmtree(store.job_dir("old-1"))
    assert torchx("prune", "--yes").code == 0
    assert ids(store) == set()
