"""What Jobs and Pods of the cluster mean."""

import copy

import pytest

from torchx.schedulers._kube.apps.app import group_jobs, parse_app
from torchx.schedulers._kube.apps.labels import ANNOTATION_ENDED
from torchx.schedulers._kube.apps.reasons import (
    explanation,
    parse_indexes,
    parse_ns,
    waiting_reason,
)
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers.kubernetes_scheduler import Opts
from torchx.schedulers.kubernetes_scheduler._plan import Facts
from torchx.schedulers.kubernetes_scheduler._request import build_request
from torchx.schedulers.kubernetes_scheduler._states import READERS, row_state
from torchx.specs import AppDef, AppState, Role

S = AppState


def app_of(*roles, **opts):
    app = AppDef("app", [*roles])
    request = build_request(app, "app-x1", Opts(**opts), Facts("default"))
    for body in request.jobs:
        body["spec"].pop("suspend", None)  # as after the release
        body["status"] = {}
    return request.jobs


def worker(replicas=2, **more):
    return Role("w", "i:1", entrypoint="run", num_replicas=replicas, **more)


def pod(index, job="app-x1-w", failures=0, deleted=False, role=0, **status):
    metadata = {
        "name": f"{job}-{index}-abcde",
        "labels": {"batch.kubernetes.io/job-name": job, "torchx.pytorch.org/role-index": str(role)},
        "annotations": {
            "batch.kubernetes.io/job-completion-index": str(index),
            "batch.kubernetes.io/job-index-failure-count": str(failures),
        },
        "creationTimestamp": f"2026-01-02T03:04:{failures:02}Z",
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-02T03:05:00Z"
    return {"metadata": metadata, "spec": {"containers": [{"name": "w"}]}, "status": status}


def ended(index, code, reason="Error", phase="Failed", **more):
    terminated = {"exitCode": code, "reason": reason, "finishedAt": "2026-01-02T03:04:05Z"}
    return pod(
        index, phase=phase, containerStatuses=[{"state": {"terminated": terminated}}], **more
    )


def running(index, **more):
    return pod(index, phase="Running", containerStatuses=[{"state": {"running": {}}}], **more)


def condition(type_, reason="", message=""):
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def snapshot(jobs, pods):
    return build_snapshot(parse_app("default:app-x1", jobs, pods), READERS["job"])


def states(jobs, pods):
    return [replica.state for replica in snapshot(jobs, pods).replicas]


def test_replicas_are_told_by_their_pods():
    pods = [ended(1, 0, "Completed", "Succeeded"), running(0), pod(2, phase="Pending")]
    assert states(app_of(worker(3)), pods) == [S.RUNNING, S.SUCCEEDED, S.PENDING]


def test_a_phase_that_we_do_not_know_is_unknown():
    assert states(app_of(worker(1)), [pod(0, phase="Dreaming")]) == [S.UNKNOWN]


def test_a_container_ends_before_the_phase_of_its_pod():
    pods = [ended(0, 0, "Completed", "Pending"), ended(1, 3, phase="Running")]
    assert states(app_of(worker()), pods) == [S.SUCCEEDED, S.FAILED]


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (3, "Error", "exited with code 3"),
        (137, "Error", "killed by SIGKILL"),
        (137, "OOMKilled", "killed by SIGKILL (out of memory)"),
        (127, "Error", "exited with code 127 (command not found)"),
    ],
)
def test_a_failure_is_told_in_one_wording(code, reason, words):
    found = snapshot(app_of(worker(1)), [ended(0, code, reason)])
    assert found.failures[0].ending == words
    assert found.state is S.FAILED


def test_an_eviction_is_told_in_the_words_of_the_node():
    evicted = pod(0, phase="Failed", reason="Evicted", message="Pod exceeds its limit. ")
    assert snapshot(app_of(worker(1)), [evicted]).failures[0].reason == (
        "Evicted: Pod exceeds its limit."
    )


def test_a_pod_that_was_disrupted_is_replaced():
    disrupted = ended(0, 143, conditions=[condition("DisruptionTarget", "EvictionByEvictionAPI")])
    assert states(app_of(worker(1)), [disrupted]) == [S.PENDING]


def test_a_node_that_is_lost_is_told():
    taint = condition("DisruptionTarget", "DeletionByTaintManager", "Taint manager: deleting")
    found = snapshot(app_of(worker()), [running(0), running(1, conditions=[taint], deleted=True)])
    assert [replica.state for replica in found.replicas] == [S.RUNNING, S.RUNNING]
    assert found.message == "w/1: DeletionByTaintManager: Taint manager: deleting"
    lost = pod(1, phase="Unknown", reason="NodeLost", message="Node n1 is unresponsive")
    found = snapshot(app_of(worker()), [running(0), lost])
    assert found.message == "w/1: NodeLost: Node n1 is unresponsive"


def test_a_failure_that_is_retried_is_not_for_good():
    jobs = app_of(worker(1, max_retries=1))
    assert states(jobs, [ended(0, 3)]) == [S.PENDING]
    found = snapshot(jobs, [ended(0, 3), ended(0, 4, failures=1)])
    assert [(r.state, r.attempt, r.exit_code) for r in found.replicas] == [(S.FAILED, 1, 4)]
    assert found.restarts == 1


def test_pods_that_went_with_a_failed_job_were_cancelled():
    jobs = app_of(worker(3))
    jobs[0]["status"]["conditions"] = [condition("FailureTarget"), condition("Failed")]
    pods = [ended(1, 3), ended(2, 143, deleted=True)]
    found = snapshot(jobs, pods)
    assert [r.state for r in found.replicas] == [S.CANCELLED, S.FAILED, S.CANCELLED]
    assert found.state is S.FAILED


def test_an_index_that_failed_is_known_without_its_pod():
    jobs = app_of(worker(4), on_failure="wait")
    jobs[0]["status"] |= {"failedIndexes": "0", "completedIndexes": "1-2"}
    assert states(jobs, []) == [S.FAILED, S.SUCCEEDED, S.SUCCEEDED, S.PENDING]


def test_a_deadline_fails_what_still_ran():
    jobs = app_of(worker(2), active_deadline_s=1)
    message = "Job was active longer than specified deadline"
    jobs[0]["status"]["conditions"] = [condition("Failed", "DeadlineExceeded", message)]
    found = snapshot(jobs, [ended(0, 0, "Completed", "Succeeded")])
    assert [r.state for r in found.replicas] == [S.SUCCEEDED, S.FAILED]
    assert "longer than specified deadline" in found.failures[0].reason


def test_a_job_that_failed_without_a_trace_fails_the_app():
    jobs = app_of(worker(1))
    jobs[0]["status"]["conditions"] = [condition("Failed", "BackoffLimitExceeded", "the limit")]
    found = snapshot(jobs, [])
    assert (found.state, found.message) == (S.FAILED, "BackoffLimitExceeded: the limit")


def test_an_app_is_cancelled_when_its_pods_are_gone():
    jobs = app_of(worker(2))
    jobs[0]["metadata"]["annotations"][ANNOTATION_ENDED] = "cancelled"
    jobs[0]["spec"]["suspend"] = True
    assert snapshot(jobs, [running(0), running(1)]).state is S.RUNNING
    assert snapshot(jobs, []).state is S.PENDING  # the controller has not noticed yet
    jobs[0]["status"]["conditions"] = [condition("Suspended")]
    assert snapshot(jobs, []).state is S.CANCELLED
    assert snapshot(jobs, [ended(0, 143, deleted=True)]).state is S.CANCELLED


def test_failures_within_min_replicas_are_no_failure():
    jobs = app_of(worker(3, min_replicas=2))
    jobs[0]["status"] |= {"failedIndexes": "0", "completedIndexes": "1,2"}
    jobs[0]["status"]["conditions"] = [condition("Failed", "FailedIndexes")]
    assert snapshot(jobs, [ended(0, 3)]).state is S.SUCCEEDED


def test_a_half_submitted_app_is_told():
    jobs = app_of(worker(1), Role("b", "i:1", entrypoint="run"))
    jobs[0]["spec"]["suspend"] = True
    found = snapshot(jobs[:1], [])
    assert found.state is S.PENDING
    assert found.message.startswith("half-submitted: 1 of 2 Jobs were never made")
    jobs[0]["metadata"]["annotations"][ANNOTATION_ENDED] = "cancelled"
    jobs[0]["status"]["conditions"] = [condition("Suspended")]
    assert snapshot(jobs[:1], []).state is S.CANCELLED


def test_jobs_of_others_are_no_app():
    (job,) = copy.deepcopy(app_of(worker(1)))
    del job["metadata"]["annotations"]
    assert parse_app("default:app-x1", [job], []) is None
    job["metadata"]["annotations"] = {"torchx.pytorch.org/app": "not ours"}
    assert parse_app("default:app-x1", [job], []) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available: 1 Insufficient cpu.",
                    }
                ]
            },
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {
                            "waiting": {
                                "reason": "ImagePullBackOff",
                                "message": "Back-off pulling image",
                            }
                        }
                    }
                ]
            },
            "ImagePullBackOff: Back-off pulling image",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({}, ""),
    ],
)
def test_why_a_pod_waits_is_told_in_the_words_of_the_cluster(status, words):
    waiting = pod(0, phase="Pending", **status)
    assert waiting_reason(waiting) == words
    message = snapshot(app_of(worker(2)), [waiting]).message
    assert message == (f"2 of 2 replicas wait: {words}" if words else "")


def test_events_explain_what_pods_do_not():
    events = [
        {"type": "Normal", "reason": "Scheduled", "message": "fine", "metadata": {}},
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": 'secret "s"  not found',
            "lastTimestamp": "2026-01-02T03:04:05Z",
            "metadata": {},
        },
        {
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "old",
            "eventTime": "2026-01-02T03:04:04Z",
            "metadata": {},
        },
    ]
    assert explanation(events) == 'FailedMount: secret "s" not found'
    assert explanation(events[:1]) == ""


@pytest.mark.parametrize(
    ("status", "mark", "state"),
    [
        ({}, "", S.PENDING),
        ({"active": 1}, "", S.PENDING),
        ({"active": 1, "ready": 1}, "", S.RUNNING),
        ({"conditions": [condition("Complete")]}, "", S.SUCCEEDED),
        ({"conditions": [condition("Failed")]}, "", S.FAILED),
        ({"conditions": [condition("Suspended")]}, "", S.PENDING),
        ({"conditions": [condition("Suspended")]}, "cancelled", S.CANCELLED),
        ({"conditions": [condition("Suspended")], "active": 1}, "cancelled", S.PENDING),
    ],
)
def test_jobs_alone_tell_the_state_of_a_row(status, mark, state):
    jobs = app_of(worker(1))
    jobs[0]["status"] = status
    if mark:
        jobs[0]["metadata"]["annotations"][ANNOTATION_ENDED] = mark
    (found,) = group_jobs(jobs)
    assert row_state(parse_app(found, jobs, [])) is state


@pytest.mark.parametrize(
    ("text", "found"), [(None, []), ("", []), ("3", [3]), ("0,2-4", [0, 2, 3, 4])]
)
def test_indexes_are_read(text, found):
    assert sorted(parse_indexes(text)) == found


@pytest.mark.parametrize("text", [None, "", "nonsense", "1970-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_none(text):
    assert parse_ns(text) is None
