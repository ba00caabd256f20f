"""What programs of Slurm printed, on a cluster or by their documentation, is read."""

from typing import Any

import pytest

from torchx.schedulers._core.snapshot import to_response
from torchx.schedulers.slurm_scheduler import _parse as parse
from torchx.schedulers.slurm_scheduler._states import JobView, NativeJob, snapshot
from torchx.specs import AppState

from . import samples

PENDING, RUNNING = AppState.PENDING, AppState.RUNNING
HET, PLAIN, HELD, DEPENDENT = "112", "114", "115", "116"


def read(name: str, form: str) -> dict[str, NativeJob]:
    """A recording of squeue in one of its two forms."""
    if form == "json":
        return parse.parse_squeue_json(samples.recorded(f"squeue-{name}.json"))
    return parse.parse_squeue_text(samples.recorded(f"squeue-{name}.txt"))


def described(job: NativeJob | None) -> Any:
    assert job is not None
    return to_response(snapshot(JobView(job.app_id, job)))


# -- recorded -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("name", "het", "plain"),
    [
        ("running", RUNNING, RUNNING),
        ("requeued", RUNNING, PENDING),  # one component ends while the other one waits; suspended
        ("completing", RUNNING, RUNNING),
        ("held", PENDING, PENDING),  # as SPECIAL_EXIT
    ],
)
def test_states_of_jobs_that_have_not_ended(form, name, het, plain):
    jobs = read(name, form)
    states = {app_id: job.state for app_id, job in jobs.items()}
    assert states == {HET: het, PLAIN: plain, HELD: PENDING, DEPENDENT: PENDING}


@pytest.mark.parametrize("form", ["json", "text"])
def test_components_hosts_and_names_are_told(form):
    jobs = read("running", form)
    found = described(jobs[HET])
    hosts = {s.role: [r.hostname for r in s.replicas] for s in found.roles_statuses}
    assert hosts == {"a": ["node1"], "b": ["node2"]}
    assert jobs[PLAIN].work_dir == "/tmp/slurm2rec"
    names = {row.app_id: row.name for row in parse.queued_apps(jobs.values(), "root")}
    assert names == {HET: "slurm2het", **dict.fromkeys((PLAIN, HELD, DEPENDENT), "slurm2rec-0")}


def test_json_tells_resources_and_restarts():
    (role, _) = described(read("running", "json")[HET]).roles
    assert (role.resource.cpu, role.resource.memMB) == (1, 100)
    assert read("held", "json")[HET].restarts == 1


ENDED = {
    "41": AppState.FAILED,  # TIMEOUT
    "42": AppState.CANCELLED,
    "43": AppState.FAILED,
    "44": AppState.SUCCEEDED,
    "45": AppState.FAILED,  # the second component
    "47": AppState.SUCCEEDED,  # after a requeue
    "54": AppState.CANCELLED,  # while it was held
    "112": AppState.SUCCEEDED,
    "114": AppState.SUCCEEDED,
    "116": AppState.FAILED,  # DEADLINE
}


@pytest.mark.parametrize(
    ("name", "form"), [("ended", "json"), ("ended", "text"), ("failed", "json")]
)
def test_squeue_tells_of_jobs_that_ended_a_short_time_ago(name, form):
    jobs = read(name, form)
    assert len(jobs) > 2
    assert {app_id: job.state for app_id, job in jobs.items()}.items() <= ENDED.items()


@pytest.mark.parametrize("name", ["sacct.txt", "sacct-no-submit-line.txt"])
@pytest.mark.parametrize(("app_id", "state"), ENDED.items())
def test_accounting_tells_how_jobs_ended(name, app_id, state):
    job = parse.parse_sacct(samples.recorded(name), app_id)
    assert described(job).state is state
    assert [c.role for c in job.components] in (["slurm2rec"], ["a", "b"])
    assert job.work_dir == "/tmp/slurm2rec"


def test_both_runs_of_a_requeued_job_are_read_as_one():
    """Only ``--duplicates`` shows the earlier one, and it is not asked for."""
    job = parse.parse_sacct(samples.recorded("sacct-duplicates.txt"), "47")
    assert {c.native for c in job.components} == {"REQUEUED", "COMPLETED"}
    once = parse.parse_sacct(samples.recorded("sacct.txt"), "47")
    assert [c.native for c in once.components] == ["COMPLETED"]


def test_the_list_of_accounting_has_each_job_once():
    rows = parse.accounted_apps(samples.recorded("sacct-list.txt"))
    assert {row.app_id: row.state for row in rows} == ENDED
    assert {row.name for row in rows} == {"slurm2rec-0", "slurm2het"}


# -- by the documentation -----------------------------------------------------------------------


@pytest.mark.parametrize("version", [*samples.SACCT_VERSIONS])
@pytest.mark.parametrize(("native", "code"), samples.SACCT_ENDS.items())
def test_every_end_that_is_documented_is_read(version, native, code):
    steps = [("12.batch", native, code, "batch"), ("12.0", "CANCELLED", "0:15", "sh")]
    text = samples.SACCT_VERSIONS[version](("12", native, code, "train-0"), *steps)
    found = described(parse.parse_sacct(text, "12"))
    state = {"COMPLETED": "SUCCEEDED", "CANCELLED": "CANCELLED", "REQUEUED": "PENDING"}
    assert found.state.name == state.get(native.split()[0], "FAILED")
    told = {"FAILED": f"replica train/0 {native}", "CANCELLED": f"cancelled; {native}"}
    assert found.msg == told.get(found.state.name, native)
    (row,) = parse.accounted_apps(text)
    assert (row.app_id, row.state) == ("12", found.state)


@pytest.mark.parametrize(("version", "make"), samples.VERSIONS.items())
@pytest.mark.parametrize("native", [s for s in samples.SACCT_ENDS if " " not in s])
def test_every_end_is_read_from_json_and_from_text(version, make, native):
    told = parse.parse_squeue_json(samples.squeue(make(12, "train-0", native)))
    text = parse.parse_squeue_text(samples.squeue_text_20_11("12", "train-0", native))
    assert told["12"].state is text["12"].state is not AppState.UNKNOWN
