"""What the notes of a job tell of its replicas."""

import os
from pathlib import Path

import pytest

from torchx.schedulers.slurm_scheduler._index import Progress, RoleNote, read_progress
from torchx.schedulers.slurm_scheduler._states import Component, NativeJob, Shown, response
from torchx.specs import AppState


@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def ended(notes: Path, *codes: int, same_time: bool = False) -> None:
    """Replicas of the first role that end one after the other, 0 first."""
    for k, code in enumerate(codes):
        path = notes / f"exit-0-0-{k}-{code}"
        path.touch()
        at_ns = 1_700_000_000_000_000_000 + (0 if same_time else k * 1_000_000)
        os.utime(path, ns=(at_ns, at_ns))


def shown(progress: Progress, replicas: int, *hosts: str, native: str = "FAILED"):
    """The answer of ``describe`` for one role."""
    state = AppState.FAILED if native == "FAILED" else AppState.RUNNING
    job = NativeJob("9", (Component("w-0", state, native, hosts=hosts),))
    return response(Shown("9", job, progress, [RoleNote("w", replicas, "", "x", False)]))


@pytest.mark.parametrize(
    ("codes", "failed"),
    [
        ((137, 1), [0, 1]),  # killed for its memory; the other fails of the SIGTERM that follows
        ((1, 143), [0]),
        ((1, 137, 143), [0]),
        ((137, 143), [0]),
        ((143, 137, 1), [0, 2]),
        ((0, 143, 2), [1, 2]),
        ((0, 0), []),
    ],
)
def test_the_first_replica_that_ends_badly_is_the_one_that_failed(notes, codes, failed):
    ended(notes, *codes)
    progress = read_progress(str(notes))
    assert [k for _, k in progress.failures] == failed
    replicas = shown(progress, len(codes)).roles_statuses[0].replicas
    assert [r.id for r in replicas if r.state is AppState.FAILED] == failed
    if failed:
        assert f"replica {failed[0]} of role `w`" in shown(progress, len(codes)).msg


def test_of_one_instant_an_exit_is_the_cause_and_a_signal_is_not(notes):
    ended(notes, 143, 1, same_time=True)
    assert read_progress(str(notes)).failures == [(0, 1)]


def test_signals_of_a_job_that_is_ended_from_outside_are_no_failures(notes):
    ended(notes, 143, 137, 1)
    (notes / "killed-0").touch()
    assert read_progress(str(notes)).failures == [(0, 2)]


def hosts(notes: Path, replicas: int, *nodes: str) -> list[str]:
    found = shown(read_progress(str(notes)), replicas, *nodes, native="RUNNING")
    return [r.hostname for r in found.roles_statuses[0].replicas]


def test_replicas_that_share_one_node_are_on_it(notes):
    assert hosts(notes, 3, "n1") == ["n1", "n1", "n1"]
    (notes / "hosts-0-0").write_text("n2\n")
    assert hosts(notes, 3) == ["n2", "n2", "n2"]


def test_replicas_that_share_several_nodes_are_where_they_said(notes):
    (notes / "hosts-0-0").write_text("rack-1\nrack-2\n")
    assert hosts(notes, 4) == ["", "", "", ""]
    for k in range(4):
        (notes / f"host-0-0-{k}-rack-{k // 2 + 1}").touch()
    assert hosts(notes, 4) == ["rack-1", "rack-1", "rack-2", "rack-2"]
    (notes / "hosts-1-0").write_text("n1\nn2\n")
    assert hosts(notes, 2) == ["n1", "n2"]


@pytest.mark.parametrize("name", ["host-0", "host-0-x-1-n", "host-0-0-1", "host-0-0-x-n"])
def test_names_that_are_no_notes_of_hosts_are_left_alone(notes, name):
    (notes / name).touch()
    assert read_progress(str(notes)).host_of == {}
