"""The kinds of objects that can run an app, and how their clusters' objects are handled."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import light_dataclass, replace
from torchx.schedulers._kube.apps.app import Object
from torchx.schedulers._kube.apps.snapshots import Reader
from torchx.schedulers._kube.calls import JOB_SETS, JOBS, VOLCANO_JOBS, Kind
from torchx.schedulers.api import SchedulerFeatures
from torchx.specs.api import RetryPolicy

from ._states import READERS


@light_dataclass(frozen=True)
class ObjectKind:
    """A value of the option ``job_api``.

    Args:
        kind: kind of the main objects of an app, which have its annotation.
        mark: label of all their pods.
        features: features of such an app.
        suspends: True if it is ended by suspending it, False if by a command.
    """

    api: str
    kind: Kind
    mark: str
    features: SchedulerFeatures
    suspends: bool = True

    @property
    def reader(self) -> Reader:
        """The functions that parse its objects."""
        return READERS[self.api]


JOB_FEATURES = SchedulerFeatures(
    log_time_range=True,
    delete_forgets=True,
    durable=True,
    replica_statuses=True,
    exit_codes=True,
    retries=frozenset({RetryPolicy.REPLICA}),
    min_replicas=True,
    mounts=True,
    event_wait=True,
    attempts=True,
    execute=True,
    port_forward=True,
)
_ALL_AGAIN = replace(
    JOB_FEATURES,
    retries=frozenset({RetryPolicy.REPLICA, RetryPolicy.APPLICATION}),
    ends_on_failure=True,
    attempts=False,  # pods are deleted before a restart, including logs
)

KINDS: Mapping[str, ObjectKind] = {
    kind.api: kind
    for kind in (
        ObjectKind("job", JOBS, "batch.kubernetes.io/job-name", JOB_FEATURES),
        ObjectKind("jobset", JOB_SETS, "jobset.sigs.k8s.io/jobset-name", _ALL_AGAIN),
        ObjectKind("volcano", VOLCANO_JOBS, "volcano.sh/job-name", _ALL_AGAIN, suspends=False),
    )
}
"""Kinds by the value of the option ``job_api``, the default first."""

GROUPS = {api: kind.kind.group for api, kind in KINDS.items()}
"""The API group that a cluster must have."""


def kind_of_pods(pods: Sequence[Object]) -> ObjectKind | None:
    """Returns the kind of objects that created these pods; ``None`` if unknown."""
    for pod in pods:
        labels: Any = pod["metadata"].get("labels") or {}
        for api in ("volcano", "jobset", "job"):  # pods of a JobSet are also pods of Jobs
            if KINDS[api].mark in labels:
                return KINDS[api]
    return None


def kind_for_queue(groups: Mapping[str, Sequence[str]]) -> str:
    """Returns the kind for an app with a queue, on a cluster with these API groups."""
    return "volcano" if KINDS["volcano"].kind.group in groups else "job"


def has_kueue(groups: Mapping[str, Sequence[str]]) -> bool:
    """Returns True if the cluster has queues for Jobs and JobSets."""
    return "kueue.x-k8s.io" in groups
