"""The Job controller and the node do what the documentation says."""

from typing import Any

import pytest

from tests.fake_kube.jobs import intervals
from tests.fake_kube.pod_env import expanded
from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.calls import EVENTS, JOBS, PODS, Selection
from torchx.schedulers._kube.client import KubeClient

from .conftest import NS, condition, container, ended, job, log, pod_spec, pods, reached

FAILS = "exit $JOB_COMPLETION_INDEX"


def test_an_indexed_job_runs_each_index_once(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("j", "echo $JOB_COMPLETION_INDEX $HOSTNAME", completions=3))
    status = ended(kube, "j")
    assert status["end"] == "Complete"
    assert status["completedIndexes"] == "0-2"
    assert status["succeeded"] == 3
    said = sorted(
        line for pod in pods(kube, "app=j") for line in log(kube, pod["metadata"]["name"])
    )
    assert said == ["0 j-0", "1 j-1", "2 j-2"]


def test_pods_have_the_labels_of_their_index(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("j", "true", completions=2))
    ended(kube, "j")
    label = "batch.kubernetes.io/job-completion-index"
    assert {p["metadata"]["labels"][label] for p in pods(kube, "job-name=j")} == {"0", "1"}


def test_parallelism_limits_what_runs(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("j", "sleep 60", completions=5, parallelism=2))
    reached(lambda: kube.get(JOBS, NS, "j").get("status", {}).get("active") == 2)
    kube.patch(JOBS, NS, "j", {"spec": {"parallelism": 3}})
    reached(lambda: kube.get(JOBS, NS, "j")["status"].get("active") == 3)


@pytest.mark.parametrize(
    ("spec", "end", "reason", "completed", "failed_indexes", "pods_made"),
    [
        ({"backoffLimit": 0}, "Failed", "BackoffLimitExceeded", None, None, None),
        (
            {"backoffLimitPerIndex": 1, "maxFailedIndexes": 0},
            "Failed",
            "MaxFailedIndexesExceeded",
            None,
            None,
            None,
        ),
        ({"backoffLimitPerIndex": 1}, "Failed", "FailedIndexes", "0", "1,2", 5),
        (
            {"backoffLimitPerIndex": 0, "maxFailedIndexes": 2},
            "Failed",
            "FailedIndexes",
            "0",
            "1,2",
            3,
        ),
    ],
)
def test_how_jobs_fail(
    kube: KubeClient,
    spec: dict[str, Any],
    end: str,
    reason: str,
    completed: str | None,
    failed_indexes: str | None,
    pods_made: int | None,
) -> None:
    if "backoffLimitPerIndex" in spec:
        spec = {"backoffLimit": 100, **spec}
    kube.create(JOBS, NS, job("j", FAILS, completions=3, **spec))
    status = ended(kube, "j")
    assert (status["end"], status["reason"]) == (end, reason)
    if completed is not None:
        assert status["completedIndexes"] == completed
        assert status["failedIndexes"] == failed_indexes
        assert len(pods(kube, "app=j")) == pods_made


def test_a_failed_job_ends_the_others(kube: KubeClient) -> None:
    script = 'test "$JOB_COMPLETION_INDEX" = 0 && exit 3; sleep 60'
    kube.create(JOBS, NS, job("j", script, completions=3))
    assert ended(kube, "j")["reason"] == "BackoffLimitExceeded"
    reached(lambda: [p["status"]["phase"] for p in pods(kube, "app=j")] == ["Failed"])


def test_retries(kube: KubeClient, tmp_path: Any) -> None:
    script = f"test -e {tmp_path}/x || {{ touch {tmp_path}/x; exit 1; }}"
    kube.create(JOBS, NS, job("j", script, backoffLimit=1))
    status = ended(kube, "j")
    assert (status["end"], status["failed"], status["succeeded"]) == ("Complete", 1, 1)


def test_failure_policies(kube: KubeClient) -> None:
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    policy = {"rules": rules}
    kube.create(JOBS, NS, job("j", "exit 42", backoffLimit=5, podFailurePolicy=policy))
    assert ended(kube, "j")["reason"] == "PodFailurePolicy"
    assert len(pods(kube, "app=j")) == 1


def test_a_suspended_job_runs_when_it_is_released_and_ends_when_suspended(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("j", "sleep 60", suspend=True))
    assert condition(kube, JOBS, "j", "Suspended")["reason"] == "JobSuspended"
    assert pods(kube) == []
    kube.patch(JOBS, NS, "j", {"spec": {"suspend": False}})
    reached(lambda: [p["status"]["phase"] for p in pods(kube)] == ["Running"])
    kube.patch(JOBS, NS, "j", {"spec": {"suspend": True}})
    reached(lambda: pods(kube) == [])
    assert "active" not in condition_status(kube)


def condition_status(kube: KubeClient) -> dict[str, Any]:
    condition(kube, JOBS, "j", "Suspended")
    status: dict[str, Any] = kube.get(JOBS, NS, "j")["status"]
    return status


def test_deadline_and_time_to_live(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("slow", "sleep 60", activeDeadlineSeconds=1))
    kube.create(JOBS, NS, job("short", "true", ttlSecondsAfterFinished=1))
    assert ended(kube, "slow")["reason"] == "DeadlineExceeded"
    reached(lambda: not kube.list_objects(Selection(JOBS, NS, fields="metadata.name=short")).items)
    reached(lambda: pods(kube, "app=short") == [])


def test_deleting_a_job_deletes_its_pods(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job("j", "sleep 60", completions=2))
    reached(lambda: len(pods(kube)) == 2)
    kube.delete(JOBS, NS, "j")
    reached(lambda: pods(kube) == [])


def pod(name: str, spec: Any) -> Any:
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def phase(kube: KubeClient, name: str) -> str:
    return str(kube.get(PODS, NS, name)["status"]["phase"])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A)$(B)", "12"),
    ],
)
def test_references_are_expanded(text: str, result: str) -> None:
    assert expanded(text, {"A": "1", "B": "2"}) == result


def test_variables_refer_to_those_before_them(kube: KubeClient) -> None:
    env = [
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "late"},
        {"name": "BOTH", "value": "$(EARLY) $(LATE) $$(LATE)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
    ]
    spec = pod_spec("", containers=[container('echo "$BOTH" "$NAME" "$0"', env=env)])
    spec["containers"][0]["args"] = ["$(LATE)"]
    kube.create(PODS, NS, pod("p", spec))
    reached(lambda: phase(kube, "p") == "Succeeded")
    assert log(kube, "p") == ["$(LATE) late $(LATE) p late"]


def test_init_containers_run_first_and_may_fail(kube: KubeClient) -> None:
    init = [container("echo first; exit 7", name="init")]
    kube.create(PODS, NS, pod("p", pod_spec("echo never", initContainers=init)))
    reached(lambda: phase(kube, "p") == "Failed")
    status = kube.get(PODS, NS, "p")["status"]
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert log(kube, "p", container="init") == ["first"]
    assert "is waiting to start" in log(kube, "p", container="main")[0]


def test_exit_codes_and_signals(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(PODS, NS, pod("code", pod_spec("exit 9")))
    kube.create(PODS, NS, pod("oom", pod_spec("sleep 60")))
    reached(lambda: phase(kube, "oom") == "Running")
    cluster.admin("kill", {"namespace": NS, "name": "oom", "reason": "OOMKilled"})
    for name, exit_code, reason in (("code", 9, "Error"), ("oom", 137, "OOMKilled")):
        reached(lambda name=name: phase(kube, name) == "Failed")
        state = kube.get(PODS, NS, name)["status"]["containerStatuses"][0]["state"]
        assert (state["terminated"]["exitCode"], state["terminated"]["reason"]) == (
            exit_code,
            reason,
        )


def reasons(kube: KubeClient, name: str) -> list[str]:
    selection = Selection(EVENTS, NS, fields=f"involvedObject.name={name}")
    return [event["reason"] for event in kube.list_objects(selection).items]


def test_why_a_pod_waits(kube: KubeClient) -> None:
    image = container("true", image="registry/no-such-image:1")
    kube.create(PODS, NS, pod("image", pod_spec("", containers=[image])))
    big = container("true", resources={"limits": {"nvidia.com/gpu": "64"}})
    kube.create(PODS, NS, pod("big", pod_spec("", containers=[big])))
    reached(lambda: "BackOff" in reasons(kube, "image"))
    waiting = kube.get(PODS, NS, "image")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert reasons(kube, "big") == ["FailedScheduling"]
    scheduled = kube.get(PODS, NS, "big")["status"]["conditions"][0]
    assert scheduled["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in scheduled["message"]


def test_restarts_keep_the_previous_log(kube: KubeClient, tmp_path: Any) -> None:
    script = f"echo run; test -e {tmp_path}/x || {{ touch {tmp_path}/x; exit 1; }}; echo well"
    kube.create(PODS, NS, pod("p", pod_spec(script, restartPolicy="OnFailure")))
    reached(lambda: phase(kube, "p") == "Succeeded")
    assert log(kube, "p") == ["run", "well"]
    assert log(kube, "p", previous="true") == ["run"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [(set(), ""), ({3}, "3"), ({0, 1}, "0,1"), ({0, 1, 2, 5, 7, 8}, "0-2,5,7,8")],
)
def test_indexes_are_written_as_intervals(numbers: set[int], text: str) -> None:
    assert intervals(numbers) == text
