"""Names of the published package that clients replace or import, kept out of the other modules.

Clients replace functions of the package itself (``slurm_scheduler.version = ...``): their results
are read here, before the request is built.
"""

import functools
from dataclasses import replace

from torchx.schedulers._core.snapshot import to_response, to_row
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse

from . import _client
from ._request import COMPONENT_OPTIONS, GPUS_PER_NODE_SINCE, JOB_OPTIONS, Facts
from ._states import JobView, NativeJob, snapshot

SBATCH_JOB_OPTIONS = {*JOB_OPTIONS}
"""Options of the whole job."""
SBATCH_GROUP_OPTIONS = {*COMPONENT_OPTIONS}
"""Options of each component of a job."""


@functools.cache
def version() -> tuple[int, int]:
    """Returns the version of the cluster, queried once; warns and assumes one if unknown."""
    return _client.cluster_version()


def _should_use_gpus_per_node_from_version() -> bool:
    import torchx.schedulers.slurm_scheduler as package  # a client may have replaced the name

    return package.version() >= GPUS_PER_NODE_SINCE


def _partition_memmb(partition: str | None) -> int | None:
    """Returns the memory of a partition's nodes in MB; ``None`` if unknown."""
    return _client.partition_mem_mb(partition)


def ask_facts(partition: str | None, memory: bool, gpus: bool) -> Facts:
    """Returns the facts that the request depends on; queries the cluster only for those.

    Args:
        memory: True if a role requests memory.
        gpus: True if a role requests GPUs.
    """
    import torchx.schedulers.slurm_scheduler as package  # a client may have replaced the names

    facts = Facts(partition_mem_mb=package._partition_memmb(partition) if memory else None)
    if not gpus:
        return facts
    by_node = package._should_use_gpus_per_node_from_version
    if by_node is not _should_use_gpus_per_node_from_version:
        return replace(facts, by_node=by_node())
    return replace(facts, version=package.version())


class SingleQuestions:
    """Queries of squeue or sacct alone; the scheduler's methods combine both."""

    def _describe_squeue(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the job from squeue alone."""
        return _described(app_id, _client.queue(self._cluster(app_id)).jobs().get(app_id))

    def _describe_sacct(self, app_id: str) -> DescribeAppResponse | None:
        """Returns the job from sacct alone."""
        return _described(app_id, _client.accounting(app_id, self._cluster(app_id)))

    def _list_squeue(self) -> list[ListAppResponse]:
        """Returns the jobs that the controller knows: waiting, running, or recently ended."""
        return [to_row(app) for app in _client.queued_apps()]

    def _list_sacct(self) -> list[ListAppResponse] | None:
        """Returns the jobs that accounting knows; ``None`` without accounting."""
        apps = _client.accounted_apps()
        return [to_row(app) for app in apps] if apps is not None else None

    def _cluster(self, app_id: str) -> str:
        """Returns the cluster of a federation that runs the job."""
        raise NotImplementedError


def _described(app_id: str, job: NativeJob | None) -> DescribeAppResponse | None:
    return to_response(snapshot(JobView(app_id, job))) if job is not None else None
