"""What JobSets and Jobs of Volcano mean, with their pods."""

import pytest

from torchx.schedulers._kube.apps.app import parse_app
from torchx.schedulers._kube.apps.labels import ANNOTATION_ENDED
from torchx.schedulers._kube.apps.reasons import explanation
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers.kubernetes_scheduler import JOB_STATE, Opts
from torchx.schedulers.kubernetes_scheduler._plan import Facts
from torchx.schedulers.kubernetes_scheduler._request import build_request
from torchx.schedulers.kubernetes_scheduler._states import READERS, is_over, row_state
from torchx.specs import AppDef, AppState, RetryPolicy, Role

S = AppState


class Look:
    """The objects of an app of two replicas, as the cluster would give them."""

    def __init__(self, api, status=None, mark="", **more):
        role = Role("r", "i", entrypoint="run", num_replicas=2, **more)
        request = build_request(AppDef("app", [role]), "app-x1", Opts(), Facts(api=api))
        self.api = api
        self.job = request.resource
        self.job["status"] = status or {}
        if mark:
            self.job["metadata"]["annotations"][ANNOTATION_ENDED] = mark
        self.pods = []

    def pod(self, k, code=None, attempt=0, deleted=False, phase="Running"):
        states = [{"state": {"running": {}}}]
        if code is not None:
            states = [{"state": {"terminated": {"exitCode": code, "reason": "Error"}}}]
        metadata = {
            "name": f"p{k}-{attempt}",
            "labels": {
                "torchx.pytorch.org/role-index": "0",
                "torchx.pytorch.org/replica-id": str(k),
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            },
            "annotations": {},
        }
        if deleted:
            metadata["deletionTimestamp"] = "2026-01-02T03:05:00Z"
        status = {"phase": phase, "containerStatuses": states}
        spec = {"containers": [{"name": "r"}]}
        self.pods.append({"metadata": metadata, "spec": spec, "status": status})
        return self

    @property
    def app(self):
        return parse_app("default:app-x1", [self.job], self.pods)

    @property
    def snapshot(self):
        return build_snapshot(self.app, READERS[self.api])

    @property
    def states(self):
        return [replica.state for replica in self.snapshot.replicas]


def phase(name, **more):
    return {"state": {"phase": name}, **more}


def condition(type_, reason="", message=""):
    found = {"type": type_, "status": "True", "reason": reason, "message": message}
    return {"conditions": [found]}


# -- Jobs of Volcano -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "state"), [*JOB_STATE.items(), ("", S.PENDING), ("?", S.UNKNOWN)])
def test_a_list_shows_the_phase_of_a_job_of_volcano(name, state):
    look = Look("volcano", phase(name) if name else {})
    assert row_state(look.app, "volcano") is state


def test_nothing_is_known_of_a_job_that_volcano_has_not_seen():
    look = Look("volcano")
    assert look.states == [S.PENDING, S.PENDING]
    assert look.snapshot.state is S.PENDING


@pytest.mark.parametrize(
    ("name", "states", "state"),
    [
        ("Completed", [S.SUCCEEDED, S.SUCCEEDED], S.SUCCEEDED),
        ("Aborted", [S.CANCELLED, S.CANCELLED], S.CANCELLED),
        ("Terminated", [S.CANCELLED, S.CANCELLED], S.FAILED),
        ("Failed", [S.CANCELLED, S.CANCELLED], S.FAILED),
        ("Restarting", [S.PENDING, S.PENDING], S.PENDING),
    ],
)
def test_without_pods_the_phase_tells(name, states, state):
    look = Look("volcano", phase(name))
    assert (look.states, look.snapshot.state) == (states, state)


def test_a_failed_replica_is_the_cause_and_the_ended_ones_are_not():
    look = Look("volcano", phase("Terminating")).pod(0, deleted=True).pod(1, code=3)
    assert look.states == [S.RUNNING, S.FAILED]
    assert look.snapshot.state is S.RUNNING
    look = Look("volcano", phase("Terminated")).pod(1, code=3)
    assert look.states == [S.CANCELLED, S.FAILED]
    assert look.snapshot.state is S.FAILED


RETRIED = {"max_retries": 2, "retry_policy": RetryPolicy.APPLICATION}


def test_the_failure_after_the_last_retry_is_no_restart():
    look = Look("volcano", phase("Failed", retryCount=3), **RETRIED)
    assert look.snapshot.restarts == 2
    look = Look("volcano", phase("Running", retryCount=1), **RETRIED)
    assert look.snapshot.restarts == 1


def test_a_failure_that_is_retried_is_none():
    look = Look("volcano", phase("Running"), **RETRIED).pod(0).pod(1, code=3)
    assert look.states == [S.RUNNING, S.PENDING]


def test_a_job_that_was_cancelled_is_cancelled_whatever_its_pods_say():
    look = Look("volcano", phase("Aborted"), mark="cancelled").pod(0, code=143)
    assert look.snapshot.state is S.CANCELLED
    assert is_over(look.job)


def test_the_cause_of_a_wait_goes_before_what_volcano_says_of_every_group():
    def event(type_, message, count):
        found = {"type": type_, "reason": "Unschedulable", "message": message}
        return {**found, "metadata": {}, "count": count}

    first = event("Warning", "0/0 tasks in gang unschedulable: pod group is not ready", 2)
    usual = {**first, "count": 9}
    cause = event("Normal", "resource in cluster is overused: overused cpu", 1)
    assert explanation([usual, cause]) == f"Unschedulable: {cause['message']}"
    assert explanation([usual]) == f"Unschedulable: {usual['message']}"
    assert explanation([first]) == ""  # that is said at every start


# -- JobSets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "mark", "state"),
    [
        ({}, "", S.PENDING),
        ({"replicatedJobsStatus": [{"ready": 1}]}, "", S.RUNNING),
        (condition("Completed"), "", S.SUCCEEDED),
        (condition("Failed"), "", S.FAILED),
        (condition("Suspended"), "", S.PENDING),
        (condition("Suspended"), "cancelled", S.CANCELLED),
    ],
)
def test_a_list_shows_the_word_of_a_job_set(status, mark, state):
    assert row_state(Look("jobset", status, mark).app, "jobset") is state


@pytest.mark.parametrize(
    ("status", "mark", "states", "state"),
    [
        (None, "", [S.PENDING, S.PENDING], S.PENDING),
        (condition("Completed"), "", [S.SUCCEEDED, S.SUCCEEDED], S.SUCCEEDED),
        (condition("Failed", "FailedJobs", "why"), "", [S.CANCELLED, S.CANCELLED], S.FAILED),
        (condition("Suspended"), "cancelled", [S.CANCELLED, S.CANCELLED], S.CANCELLED),
    ],
)
def test_without_pods_the_set_tells(status, mark, states, state):
    look = Look("jobset", status, mark)
    assert (look.states, look.snapshot.state) == (states, state)
    assert look.snapshot.message == ("FailedJobs: why" if state is S.FAILED else "")


def test_the_pods_of_the_latest_attempt_count():
    status = {"restarts": 1}
    look = Look("jobset", status, **RETRIED).pod(0, code=3).pod(0, attempt=1).pod(1, attempt=1)
    assert look.states == [S.RUNNING, S.RUNNING]
    assert look.snapshot.restarts == 1


def test_a_failure_is_final_when_the_set_starts_nothing_again():
    look = Look("jobset", {"restarts": 2}, **RETRIED).pod(0, attempt=2).pod(1, code=3, attempt=2)
    assert look.states == [S.RUNNING, S.FAILED]
