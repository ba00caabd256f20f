"""Converts the service's records of jobs to snapshots. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx.schedulers._core.exits import from_shell
from torchx.schedulers._core.logs import to_ns
from torchx.schedulers._core.snapshot import AppSnapshot, ReplicaSnapshot
from torchx.settings import ENV_TORCHX_ROLE_NAME
from torchx.specs.api import AppState, Role

from ._command import cut_script
from ._names import TAG_APP

JOB_STATE: dict[str, AppState] = {
    "InProgress": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Stopping": AppState.RUNNING,
    "Stopped": AppState.CANCELLED,
    "Deleting": AppState.RUNNING,
}
"""State by ``TrainingJobStatus`` alone."""

_WAITING = frozenset(
    [
        "Starting",
        "LaunchingMLInstances",
        "PreparingTrainingStack",
        "Downloading",
        "DownloadingTrainingImage",
        "Pending",
        "Interrupted",
        "Restarting",
    ]
)
"""Values of ``SecondaryStatus`` in which the program does not run."""
_TOO_LONG = {
    "MaxRuntimeExceeded": "it ran longer than max_run allows",
    "MaxWaitTimeExceeded": "it waited for spot instances longer than max_wait allows",
}
_STARTS_AGAIN = ("Interrupted", "Restarting")
_DEFAULT_ROLE = "worker"
"""Name of the role of a job that was not started by TorchX."""
_EXIT_CODE = re.compile(r"(?:exit code:?|ExitCode:?)\s*(\d+)", re.IGNORECASE)
_CONSOLES = {
    "aws": "{region}.console.aws.amazon.com",
    "aws-cn": "{region}.console.amazonaws.cn",
    "aws-us-gov": "{region}.console.amazonaws-us-gov.com",
}


def job_state(status: str, secondary: str = "") -> AppState:
    """Returns the state of a job; ``UNKNOWN`` for values that this version does not know.

    >>> job_state("InProgress", "Downloading"), job_state("Stopped", "MaxRuntimeExceeded")
    (PENDING (2), FAILED (5))
    """
    state = JOB_STATE.get(status, AppState.UNKNOWN)
    if status == "InProgress" and secondary in _WAITING:
        return AppState.PENDING
    if status == "Stopped" and secondary in _TOO_LONG:
        return AppState.FAILED
    return state


def parse_job(record: Mapping[str, Any]) -> AppSnapshot:
    """Builds the snapshot of a job from the record of ``DescribeTrainingJob`` or ``Search``.

    The service reports one state for all instances, and not which of them failed.
    """
    name = str(record.get("TrainingJobName") or "")
    state = job_state(_text(record, "TrainingJobStatus"), _text(record, "SecondaryStatus"))
    role = _role(record)
    cancelled = record.get("TrainingJobStatus") in ("Stopping", "Stopped") and (
        state is not AppState.FAILED
    )
    return AppSnapshot(
        app_id=name,
        name=_tag(record, TAG_APP) or name,
        replicas=tuple(_replica(record, role, k, state) for k in range(role.num_replicas)),
        roles=(role,),
        native_state=state,
        cancelled=cancelled,
        message=_message(record, state),
        restarts=_restarts(record),
        metadata=_metadata(record),
        ui_url=job_ui_url(_text(record, "TrainingJobArn")),
        ends_on_failure=True,
        ending=False,
    )


def parse_row(record: Mapping[str, Any]) -> AppSnapshot:
    """Builds a snapshot with only the fields that a list shows."""
    name = str(record.get("TrainingJobName") or "")
    state = job_state(_text(record, "TrainingJobStatus"), _text(record, "SecondaryStatus"))
    return AppSnapshot(name, name=_tag(record, TAG_APP) or name, native_state=state)


def job_ui_url(arn: str) -> str | None:
    """Returns the page of a job in the console; ``None`` for any other ARN."""
    found = re.fullmatch(r"arn:([\w-]+):sagemaker:([\w-]+):\d*:training-job/(.+)", arn)
    if found is None:
        return None
    partition, region, name = found.groups()
    host = _CONSOLES.get(partition, _CONSOLES["aws"]).format(region=region)
    return f"https://{host}/sagemaker/home?region={region}#jobs/{name}"


def _text(record: Mapping[str, Any], key: str) -> str:
    return str(record.get(key) or "")


def _role(record: Mapping[str, Any]) -> Role:
    algorithm = record.get("AlgorithmSpecification") or {}
    resources = record.get("ResourceConfig") or {}
    groups = resources.get("InstanceGroups") or [resources]
    count = sum(int(group.get("InstanceCount") or 0) for group in groups)
    env = dict(record.get("Environment") or {})
    script = cut_script(algorithm)
    entrypoint = [*(algorithm.get("ContainerEntrypoint") or [])]
    words = [*entrypoint, *(algorithm.get("ContainerArguments") or [])]
    if script is not None:
        words = ["sh", "-c", script]
    return Role(
        env.get(ENV_TORCHX_ROLE_NAME) or _DEFAULT_ROLE,
        str(algorithm.get("TrainingImage") or ""),
        entrypoint=words[0] if words else "",
        args=words[1:],
        env=env,
        num_replicas=max(count, 1),
    )


def _replica(record: Mapping[str, Any], role: Role, k: int, state: AppState) -> ReplicaSnapshot:
    code, reason = None, ""
    if state is AppState.FAILED:
        code = _exit_code(record) if role.num_replicas == 1 else None
        if role.num_replicas > 1:
            reason = "failed, or another one did"
        elif code is None:
            reason = _failure(record)
    return ReplicaSnapshot(
        role.name,
        k,
        state,
        exit_code=code,
        reason=reason,
        host=f"algo-{k + 1}",
        started_ns=_ns(record.get("TrainingStartTime")),
        ended_ns=_ns(record.get("TrainingEndTime")),
        native_id=f"algo-{k + 1}",
    )


def _exit_code(record: Mapping[str, Any]) -> int | None:
    found = _EXIT_CODE.search(_text(record, "FailureReason"))
    return from_shell(int(found[1])) if found else None


def _failure(record: Mapping[str, Any]) -> str:
    too_long = _TOO_LONG.get(_text(record, "SecondaryStatus"))
    return " ".join((_text(record, "FailureReason") or too_long or "").split())


def _message(record: Mapping[str, Any], state: AppState) -> str:
    """Returns the service's reason why it waits, or how it failed."""
    if state is AppState.FAILED:
        one = _role(record).num_replicas == 1
        # unless the replica has the same reason
        return _failure(record) if not one or _exit_code(record) is not None else ""
    if state is not AppState.PENDING:
        return ""
    steps = record.get("SecondaryStatusTransitions") or []
    words = _text(steps[-1], "StatusMessage") if steps else ""
    return ": ".join(filter(None, [_text(record, "SecondaryStatus"), words]))


def _restarts(record: Mapping[str, Any]) -> int:
    steps = record.get("SecondaryStatusTransitions")
    if steps is None:
        return -1
    return sum(step.get("Status") in _STARTS_AGAIN for step in steps)


def _metadata(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(tag.get("Key")): str(tag.get("Value")) for tag in record.get("Tags") or ()}


def _tag(record: Mapping[str, Any], key: str) -> str:
    return _metadata(record).get(key, "")


def _ns(moment: object) -> int | None:
    return to_ns(moment) if isinstance(moment, datetime) else None
