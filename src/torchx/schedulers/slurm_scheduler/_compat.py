"""Names of the published package that clients replace or import; the rooms beside are free of them.

Clients replace functions of the package itself (``slurm_scheduler.version = ...``): who needs the
answer asks here, before the request is built.
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
    """Version of the cluster, asked for once; warns and assumes one if sinfo does not tell."""
    return _client.cluster_version()


def _should_use_gpus_per_node_from_version() -> bool:
    import torchx.schedulers.slurm_scheduler as package  # a client may have replaced the name

    return package.version() >= GPUS_PER_NODE_SINCE


def _partition_memmb(partition: str | None) -> int | None:
    """Memory of a partition's nodes in MB, of the default one for ``None``; ``None`` if unknown."""
    return _client.partition_mem_mb(partition)


def ask_facts(partition: str | None, memory: bool, gpus: bool) -> Facts:
    """Facts that the request depends on; the cluster is only asked for those.

    Args:
        memory: a role asks for memory.
        gpus: a role asks for GPUs.
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
    """Answers of squeue or sacct alone; the verbs of the scheduler put both together."""

    def _describe_squeue(self, app_id: str) -> DescribeAppResponse | None:
        """The job by squeue alone."""
        return _described(app_id, _client.queue(self._cluster(app_id)).jobs().get(app_id))

    def _describe_sacct(self, app_id: str) -> DescribeAppResponse | None:
        """The job by sacct alone."""
        return _described(app_id, _client.accounting(app_id, self._cluster(app_id)))

    def _list_squeue(self) -> list[ListAppResponse]:
        """The jobs that the controller knows: those that wait, run, or ended lately."""
        return [to_row(app) for app in _client.queued_apps()]

    def _list_sacct(self) -> list[ListAppResponse] | None:
        """The jobs that accounting knows; ``None`` if there is no accounting."""
        apps = _client.accounted_apps()
        return [to_row(app) for app in apps] if apps is not None else None

    def _cluster(self, app_id: str) -> str:
        """The cluster of a federation that runs the job."""
        raise NotImplementedError


def _described(app_id: str, job: NativeJob | None) -> DescribeAppResponse | None:
    return to_response(snapshot(JobView(app_id, job))) if job is not None else None
