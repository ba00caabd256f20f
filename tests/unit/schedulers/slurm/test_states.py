"""States and records of Slurm in the words of TorchX, for all versions."""

import json
from typing import Any

import pytest

from torchx.errors import UnexpectedReply
from torchx.schedulers._core.snapshot import to_response
from torchx.schedulers.slurm_scheduler import (
    SLURM_STATES,
    appstate_from_slurm_state,
    get_appstate_from_job,
)
from torchx.schedulers.slurm_scheduler import _parse as parse
from torchx.schedulers.slurm_scheduler._states import JobView, NativeJob, job_state, snapshot
from torchx.specs import AppState, is_terminal

from . import samples

ALL = [*samples.VERSIONS.values()]
by_version = pytest.mark.parametrize("make", ALL, ids=[*samples.VERSIONS])

TABLE = {
    "BOOT_FAIL": "FAILED",
    "CANCELLED": "CANCELLED",
    "COMPLETED": "SUCCEEDED",
    "DEADLINE": "FAILED",
    "FAILED": "FAILED",
    "NODE_FAIL": "FAILED",
    "OUT_OF_MEMORY": "FAILED",
    "PENDING": "PENDING",
    "PREEMPTED": "FAILED",
    "RUNNING": "RUNNING",
    "REQUEUED": "PENDING",
    "RESIZING": "PENDING",
    "REVOKED": "FAILED",
    "SUSPENDED": "PENDING",
    "TIMEOUT": "FAILED",
    "COMPLETING": "RUNNING",
    "STAGE_OUT": "RUNNING",
    "SIGNALING": "RUNNING",
    "CONFIGURING": "PENDING",
    "STOPPED": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
    "A_STATE_OF_TOMORROW": "UNKNOWN",
    "": "UNKNOWN",
}


@pytest.mark.parametrize(("native", "expected"), TABLE.items())
def test_every_state_has_its_meaning(native, expected):
    assert appstate_from_slurm_state(native).name == expected


def test_states_come_with_words_and_marks():
    assert appstate_from_slurm_state("CANCELLED by 1001") is AppState.CANCELLED
    assert appstate_from_slurm_state("CANCELLED+") is AppState.CANCELLED
    assert appstate_from_slurm_state(" COMPLETED ") is AppState.SUCCEEDED


def test_the_first_state_that_begins_a_text_is_the_right_one():
    """NeMo-Run walks through the table with ``startswith``."""
    for native, state in SLURM_STATES.items():
        first = next(key for key in SLURM_STATES if native.startswith(key))
        assert SLURM_STATES[first] is state


def test_a_state_may_be_a_text_or_a_list():
    assert get_appstate_from_job({"job_state": "RUNNING"}) is AppState.RUNNING
    assert get_appstate_from_job({"job_state": ["PENDING", "REQUEUED"]}) is AppState.PENDING
    assert get_appstate_from_job({"job_state": []}) is AppState.UNKNOWN
    assert get_appstate_from_job({}) is AppState.UNKNOWN


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("SUCCEEDED SUCCEEDED", "SUCCEEDED"),
        ("SUCCEEDED FAILED", "FAILED"),
        ("FAILED SUCCEEDED", "FAILED"),
        ("FAILED CANCELLED", "FAILED"),
        ("CANCELLED RUNNING", "RUNNING"),
        ("FAILED RUNNING", "RUNNING"),
        ("SUCCEEDED RUNNING", "RUNNING"),
        ("PENDING RUNNING", "RUNNING"),
        ("PENDING SUCCEEDED", "RUNNING"),
        ("PENDING PENDING", "PENDING"),
        ("UNKNOWN SUCCEEDED", "UNKNOWN"),
        ("", "UNKNOWN"),
    ],
)
def test_the_state_of_a_job_by_those_of_its_components(states, expected):
    assert job_state(AppState[s] for s in states.split()).name == expected


# -- squeue -------------------------------------------------------------------------------------


def described(job: NativeJob) -> Any:
    return to_response(snapshot(JobView(job.app_id, job)))


@by_version
def test_a_running_job_of_each_version(make):
    job = parse.parse_squeue_json(samples.squeue(make(12, "train-0", "RUNNING")))["12"]
    found = described(job)
    assert (found.app_id, found.state, found.num_restarts) == ("12", AppState.RUNNING, 0)
    (role,) = found.roles
    assert (role.name, role.num_replicas, role.image) == ("train", 1, "/work")
    assert (role.resource.cpu, role.resource.gpu, role.resource.memMB) == (4, -1, 64)
    assert role.entrypoint.startswith("/jobs/torchx-sbatch.sh")
    (replica,) = found.roles_statuses[0].replicas
    assert (replica.id, replica.state, replica.hostname) == (0, AppState.RUNNING, "n1")


@by_version
@pytest.mark.parametrize("native", [s for s in TABLE if s])
def test_no_state_of_any_version_is_a_crash(make, native):
    for resources in ({}, {"job_resources": None}, {"job_resources": {}}, {"nodes": ""}):
        job = parse.parse_squeue_json(samples.squeue(make(12, "train-0", native, **resources)))[
            "12"
        ]
        assert described(job).state.name == TABLE[native]


@by_version
def test_a_pending_job_of_each_version(make):
    for more, host in (
        ({"job_resources": None, "nodes": ""}, ""),
        ({"job_resources": None, "nodes": "", "scheduled_nodes": "n7"}, "n7"),
        ({"job_resources": {"scheduled_nodes": "n8"}}, "n8"),
        ({"job_resources": {"nodes": {"list": "n9"}}}, "n9"),
    ):
        job = parse.parse_squeue_json(samples.squeue(make(12, "train-0", "PENDING", **more)))["12"]
        (status,) = described(job).roles_statuses
        assert [(r.state, r.hostname) for r in status.replicas] == [(AppState.PENDING, host)]


@by_version
def test_components_make_one_job(make):
    text = samples.squeue(*samples.het(make, 12, "RUNNING", "FAILED"), make(20, "x-0", "PENDING"))
    jobs = parse.parse_squeue_json(text)
    assert sorted(jobs) == ["12", "20"]
    found = described(jobs["12"])
    assert found.state is AppState.RUNNING  # until the rest has ended as well
    assert found.msg == "replica b/0 FAILED"
    assert [role.name for role in found.roles] == ["a", "b"]
    text = samples.squeue(*samples.het(make, 12, "COMPLETED", "FAILED"))
    assert described(parse.parse_squeue_json(text)["12"]).state is AppState.FAILED


@by_version
def test_the_components_of_older_torchx_are_replicas(make):
    jobs = samples.het(make, 12, "RUNNING", "RUNNING")
    jobs[0]["name"], jobs[1]["name"] = "w-0", "w-1"
    (role,) = described(parse.parse_squeue_json(samples.squeue(*jobs))["12"]).roles
    assert (role.name, role.num_replicas) == ("w", 2)


def test_a_job_of_others_has_a_state_and_no_roles():
    text = samples.squeue(samples.job_21_08(12, "bash", "RUNNING"))
    found = described(parse.parse_squeue_json(text)["12"])
    assert (found.state, found.roles) == (AppState.RUNNING, [])


def test_restarts_and_reasons_are_told():
    job = samples.job_21_08(12, "a-0", "PENDING", restart_cnt=2, state_reason="BeginTime")
    found = described(parse.parse_squeue_json(samples.squeue(job))["12"])
    assert found.num_restarts == 2
    assert found.msg == "PENDING (BeginTime)"


def test_reasons_that_do_not_pass_by_themselves_are_explained():
    for reason, words in (
        ("JobHeldUser", "it is held, `scontrol release 12` lets it start"),
        ("DependencyNeverSatisfied", "can never start"),
        ("PartitionNodeLimit", "fewer nodes than it asks for"),
    ):
        job = samples.job_21_08(12, "a-0", "PENDING", state_reason=reason)
        found = described(parse.parse_squeue_json(samples.squeue(job))["12"])
        assert found.msg.startswith(f"PENDING ({reason}: ")
        assert words in found.msg


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"jobs": 3}', "slurm_load_jobs"])
def test_an_answer_that_is_none_is_said_to_be_so(text):
    with pytest.raises(UnexpectedReply, match="squeue --json"):
        parse.parse_squeue_json(text)


def test_text_of_versions_without_json():
    us = "\x1f"
    lines = [
        ["12+0", "RUNNING", "None", "me", "n1", "/work", "/w/s.sh torchx:tok:train", "a-0"],
        ["12+1", "COMPLETING", "None", "me", "n[2-3]", "/work", "/w/s.sh torchx:tok:train", "b-0"],
        ["13", "PENDING", "Priority", "me", "", "/work", "(null)", f"odd{us}name-0"],
    ]
    jobs = parse.parse_squeue_text("".join(us.join(line) + "\n" for line in lines))
    assert sorted(jobs) == ["12", "13"]
    found = described(jobs["12"])
    assert found.state is AppState.RUNNING
    assert [r.hostname for r in found.roles_statuses[1].replicas] == ["n2", "n3"]
    assert [(r.app_id, r.name) for r in parse.queued_apps(jobs.values(), "me")] == [("12", "train")]
    assert parse.queued_apps(jobs.values(), "you") == []


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", "n1"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[01-02,9],m[3]x", "n01 n02 n9 m3x"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("a,b", "a b"),
    ],
)
def test_expressions_of_hosts(text, hosts):
    assert parse.expand_hosts(text) == hosts.split()


def test_the_shown_name_is_that_of_the_app():
    assert parse.shown_name("train", "worker-0") == "train"
    assert parse.shown_name("ft_1", "ft_1-0") == "ft_1-0"
    assert parse.shown_name("", "w-0") == "w-0"


# -- sacct --------------------------------------------------------------------------------------


def test_a_finished_job_in_accounting():
    job = parse.parse_sacct(samples.SACCT_ONE, "12")
    found = described(job)
    assert (found.state, found.msg) == (AppState.SUCCEEDED, "COMPLETED")
    assert [r.hostname for r in found.roles_statuses[0].replicas] == ["n1", "n2"]
    assert job.work_dir == "/work"


def test_a_failed_component_in_accounting_fails_the_job():
    found = described(parse.parse_sacct(samples.SACCT_HET, "12"))
    assert found.state is AppState.FAILED
    assert [role.name for role in found.roles] == ["a", "b"]
    states = [status.replicas[0].state for status in found.roles_statuses]
    assert states == [AppState.SUCCEEDED, AppState.FAILED]


def test_the_full_state_is_the_message():
    found = described(parse.parse_sacct(samples.SACCT_CANCELLED, "12"))
    assert (found.state, found.msg) == (AppState.CANCELLED, "cancelled; CANCELLED by 1001")


def test_other_columns_are_read_as_well():
    found = described(parse.parse_sacct(samples.SACCT_DEFAULT_FIELDS, "1853"))
    assert found.state is AppState.CANCELLED
    assert [role.name for role in found.roles] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "JobID|State\n", samples.SACCT_HEADER, samples.SACCT_ONE])
def test_a_job_without_rows_is_unknown(text):
    assert parse.parse_sacct(text, "1") is None


def test_a_name_with_the_delimiter_or_without_digits_is_no_crash():
    text = f"{samples.SACCT_HEADER}12|FAILED|1:0|/w|n1|x|odd|name-x\n"
    found = described(parse.parse_sacct(text, "12"))
    assert (found.state, found.roles) == (AppState.FAILED, [])


def test_a_comment_may_hold_what_usually_separates_fields():
    us = "\x1f"
    line = "sbatch --parsable --comment=lr=1|bs=2 /t/torchx-sbatch.sh torchx:tok:a"
    head = us.join(["JobID", "State", "ExitCode", "WorkDir", "NodeList", "SubmitLine", "JobName"])
    text = us.join(["12", "COMPLETED", "0:0", "/w", "n1", line, "train-0"])
    job = parse.parse_sacct(f"{head}\n{text}\n", "12")
    assert (job.command, [c.name for c in job.components]) == (line, ["train-0"])
    head = us.join(["JobID", "State", "SubmitLine", "JobName"])
    text = us.join(["12", "RUNNING", line, "t-0"])
    (row,) = parse.accounted_apps(f"{head}\n{text}\n")
    assert (row.app_id, row.name) == ("12", "a")
    for command in (parse.sacct_command("12"), parse.sacct_list_command("me")):
        assert f"--delimiter={us}" in command


def test_the_list_has_ours_once_each():
    line = "sbatch --parsable /t/torchx-sbatch.sh torchx:tok:train"
    text = (
        "JobID|State|SubmitLine|JobName\n"
        f"7+0|COMPLETED|{line}|a-0\n7+1|FAILED|{line}|b-0\n"
        f"9|RUNNING|{line}|train-0\n"
        "8|RUNNING|sbatch run.sh|theirs-0\n"
        "10|PENDING||c-0\n"
    )
    rows = parse.accounted_apps(text)
    assert [(r.app_id, r.state, r.name) for r in rows] == [
        ("9", AppState.RUNNING, "train-0"),
        ("7", AppState.FAILED, "train"),
    ]
    old = "JobID|State|JobName\n7|RUNNING|a-0\n8|RUNNING|bash\n"
    assert [r.app_id for r in parse.accounted_apps(old)] == ["7"]


def test_steps_and_other_jobs_are_not_the_job():
    for job_id in ("12.0", "12.batch", "12+0.batch", "123", "1", "12_1", "12+x"):
        text = f"JobID|State|JobName\n{job_id}|FAILED|a-0\n"
        assert parse.parse_sacct(text, "12") is None


def test_a_json_of_a_sample_is_what_squeue_prints():
    assert json.loads(samples.squeue())["jobs"] == []
    assert not is_terminal(AppState.UNKNOWN)
