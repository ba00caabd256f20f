"""Finds why a waiting job does not start if the service does not report it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from ._records import Record, parse_num_replicas


def why_waiting(
    job: Record, queue: Mapping[str, Any], environments: Sequence[Mapping[str, Any]]
) -> str:
    """Returns the problem of the queue or its compute environments; empty if there is none.

    Args:
        queue: record from DescribeJobQueues; empty if unknown.
        environments: the queue's records from DescribeComputeEnvironments.
    """
    name = queue.get("jobQueueName", "")
    if queue.get("state") == "DISABLED":
        return f"the queue `{name}` is disabled"
    if queue.get("status") == "INVALID":
        return f"the queue `{name}` is invalid: {queue.get('statusReason') or 'no reason given'}"
    problems = [_problem(environment, job) for environment in environments]
    if problems and all(problems):
        return "; ".join(problems)
    return ""


def _problem(environment: Mapping[str, Any], job: Record) -> str:
    """Returns why an environment does not start the job; empty if it can."""
    name = environment.get("computeEnvironmentName", "")
    if environment.get("state") == "DISABLED":
        return f"the compute environment `{name}` is disabled"
    if environment.get("status") == "INVALID":
        why = environment.get("statusReason") or "no reason given"
        return f"the compute environment `{name}` is invalid: {why}"
    most = (environment.get("computeResources") or {}).get("maxvCpus")
    needed = needed_cpus(job)
    if most is not None and needed > float(most):
        return f"the compute environment `{name}` has {most} CPUs at most, the job needs {needed:g}"
    return ""


def place_in_queue(job: Record, snapshot: Mapping[str, Any]) -> str:
    """Describes the place of a job in its queue, if GetJobQueueSnapshot has it."""
    front = (snapshot.get("frontOfQueue") or {}).get("jobs") or ()
    for place, waiting in enumerate(front, start=1):
        if waiting.get("jobArn") == job.get("jobArn"):
            return f"waits for capacity at place {place} of its queue"
    return ""


def needed_cpus(job: Record) -> float:
    """Returns the CPUs of all containers of a job."""
    properties = job.get("nodeProperties") or {}
    groups = properties.get("nodeRangeProperties") or ()
    if not groups:
        return _cpus(job.get("container") or {})
    count = int(properties.get("numNodes") or 1)
    return sum(
        parse_num_replicas(group["targetNodes"], count) * _cpus(group.get("container") or {})
        for group in groups
    )


def _cpus(container: Mapping[str, Any]) -> float:
    for requirement in container.get("resourceRequirements") or ():
        if requirement.get("type") == "VCPU":
            return float(requirement["value"])
    return float(container.get("vcpus") or 0)
