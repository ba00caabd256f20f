"""Builds Indexed Jobs of roles: one template of a pod for all replicas of a role. Pure."""

from collections.abc import Mapping
from typing import Any

from torchx.errors import InvalidInput
from torchx.settings import ENV_TORCHX_ATTEMPT, ENV_TORCHX_IMAGE, ENV_TORCHX_RANK0_HOST
from torchx.specs.api import Role, macros

from .pods import (
    ANNOTATION_ISTIO_SIDECAR,
    PLACEHOLDER_FIELD_PATH,
    PodOptions,
    build_main,
    build_placement,
    escaped,
    field_variable,
)
from .snapshots import FAILURES_ANNOTATION, INDEX_ANNOTATION

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
ATTEMPT_FIELD = f"metadata.annotations['{FAILURES_ANNOTATION}']"
"""Annotation in which a Job passes the number of failures to its pods."""

_MARK = "\0"
"""Placeholder for the replica's index until the rest is escaped; users' text has none."""
RANK0_PREFIX = (
    f'[ "${INDEX_VARIABLE}" != 0 ] || export {ENV_TORCHX_RANK0_HOST}=localhost; exec "$@"'
)
"""The first replica may not be able to resolve its own host name yet when it starts."""


class Texts:
    """Fills in the macros of a role, for all of its replicas at once.

    >>> Texts("app-1", 2).fill("${app_id} ${replica_id} $(date)")
    'app-1 $(JOB_COMPLETION_INDEX) $$(date)'

    Args:
        replicas: number of replicas of the role; the index of a single one is filled in.
    """

    def __init__(self, app: str, replicas: int) -> None:
        number = _MARK if replicas > 1 else "0"
        self._values = macros.Values("", app, number, ENV_TORCHX_RANK0_HOST)
        self.indexed = False
        """A text refers to the replica's index."""
        self.rank0 = False
        """A text refers to the variable with the first host."""

    def fill(self, text: str) -> str:
        """Returns the text for a pod, which replaces ``$(NAME)``."""
        if "$" not in text:
            return text
        self.rank0 = self.rank0 or macros.rank0_env in text
        filled = self._values.substitute(text)
        parts = [escaped(part) for part in filled.split(_MARK)]
        if len(parts) > 1:
            self.indexed = True
        else:
            parts = [escaped(filled)]
        return f"$({INDEX_VARIABLE})".join(parts)


def build_pod(
    role: Role,
    texts: Texts,
    container: str,
    rank0_host: str,
    options: PodOptions,
    *,
    first: bool,
    attempt_field: str = ATTEMPT_FIELD,
) -> dict[str, Any]:
    """Builds metadata and spec of the pods of a role, without labels.

    Args:
        rank0_host: host of the first replica of the app.
        first: True for the first role.
        attempt_field: field of the pod with the number of earlier pods of its replica.
    """
    check_image(role)
    args = [texts.fill(word) for word in (role.entrypoint, *role.args)]
    env = build_env(role, texts, rank0_host, attempt_field)
    if first and role.num_replicas > 1 and texts.rank0:
        args = ["sh", "-c", RANK0_PREFIX, "sh", *args]
    main, volumes = build_main(role, container, args, env, options)
    return {
        "metadata": {"annotations": {ANNOTATION_ISTIO_SIDECAR: "false"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [main],
            "volumes": volumes,
            **build_placement(role, options),
        },
    }


def check_image(role: Role) -> None:
    """Refuses a role without an image."""
    if not role.image:
        raise InvalidInput(f"role `{role.name}` has no image, which a pod needs")


def build_env(
    role: Role, texts: Texts, rank0_host: str, attempt_field: str = ATTEMPT_FIELD
) -> list[dict[str, Any]]:
    """Builds the variables of the container; those that others refer to come first."""
    env = [
        build_variable(name, value, texts)
        for name, value in {**role.env, ENV_TORCHX_IMAGE: role.image}.items()
    ]
    first: list[dict[str, Any]] = []
    if texts.indexed or role.num_replicas > 1:
        if INDEX_VARIABLE in role.env:
            msg = f"role `{role.name}`: the cluster sets the variable `{INDEX_VARIABLE}`"
            raise InvalidInput(f"{msg}, choose another name")
        first.append(field_variable(INDEX_VARIABLE, f"metadata.annotations['{INDEX_ANNOTATION}']"))
    if role.max_retries > 0 and ENV_TORCHX_ATTEMPT not in role.env:
        first.append(field_variable(ENV_TORCHX_ATTEMPT, attempt_field))
    if ENV_TORCHX_RANK0_HOST not in role.env:
        first.append({"name": ENV_TORCHX_RANK0_HOST, "value": rank0_host})
    return first + env


def build_variable(name: str, value: str, texts: Texts) -> dict[str, Any]:
    """Builds a variable of a role."""
    if value.startswith(PLACEHOLDER_FIELD_PATH):
        return field_variable(name, value.removeprefix(PLACEHOLDER_FIELD_PATH))
    return {"name": name, "value": texts.fill(value)}


# -- Jobs ----------------------------------------------------------------------------------------


def build_job_spec(role: Role, limits: dict[str, int]) -> dict[str, Any]:
    """Builds the spec of a role's Job, without its pods.

    Args:
        limits: number of failures it tolerates.
    """
    return {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        **limits,
        "podFailurePolicy": _DISRUPTIONS_DO_NOT_COUNT,
    }


_DISRUPTIONS_DO_NOT_COUNT = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}
"""Evicted or preempted pods are replaced, in addition to the retries."""


def limits_of_failures(role: Role, end: bool) -> dict[str, int]:
    """Returns how many failures the Job of a role tolerates."""
    spare = spare_replicas(role)
    if role.max_retries == 0 and end and spare == 0:
        return {"backoffLimit": 0}
    limits = {"backoffLimitPerIndex": role.max_retries}
    if end:
        limits["maxFailedIndexes"] = spare
    return limits


def fails_as_a_whole(job_spec: Mapping[str, Any]) -> bool:
    """Whether a Job ends all its pods when as many have failed for good as it allows."""
    return job_spec.get("backoffLimit") == 0 or "maxFailedIndexes" in job_spec


def limits_of_last_failure(end: bool) -> dict[str, int]:
    """Returns the limits of a Job that is not retried by itself, but together with others."""
    return {"backoffLimit": 0} if end else {"backoffLimitPerIndex": 0}


def spare_replicas(role: Role) -> int:
    """Returns number of replicas of each role that may fail."""
    if role.min_replicas is None:
        return 0
    return max(role.num_replicas - role.min_replicas, 0)
