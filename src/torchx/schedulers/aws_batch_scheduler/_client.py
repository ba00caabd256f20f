"""The calls of AWS Batch: submit, find, describe, list, end, remove."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx._aws.errors import AnswerLost, AwsRefused
from torchx._aws.once import exactly_once
from torchx._aws.session import AwsService
from torchx._startup.lazy_logger import get_logger
from torchx.errors import TorchXError
from torchx.schedulers._core.interrupting import sigterm_raises
from torchx.specs.api import AppState, is_terminal

from ._reasons import place_in_queue, why_waiting
from ._records import Record, is_multinode, state_of
from ._request import BatchJob, queue_name
from ._tags import TAG_TORCHX_VER

DESCRIBED_AT_ONCE = 100
"""Most jobs in one DescribeJobs."""
_TOGETHER_S = 1.0
"""Seconds for which a record fetched with other apps is fresh enough for a query."""
_WATCHED_S = 120.0
"""Seconds after the last query of an app during which queries of others include it."""
_EXPLAINED_AFTER_S = 30.0
"""Seconds that a job waits before the reason is requested."""
_EXPLAIN_AGAIN_S = 60.0

logger = get_logger(__name__)


# -- submitting ----------------------------------------------------------------------------------


def submit(batch: AwsService, job: BatchJob) -> str:
    """Registers the definition and submits the job, each once; returns the job's ARN.

    A definition whose job was refused is deregistered.

    Raises:
        AwsRefused: with AWS's message.
        BackendUnavailable: if AWS cannot be reached.
    """
    with sigterm_raises():
        try:
            definition = _register(batch, job)
        except TorchXError:
            raise  # there is none, or AWS does not report it
        except BaseException:
            _undo_submission(batch, job, None, submitted=False)
            raise
        try:
            return _submit(batch, job)
        except AnswerLost:  # it may be running: keep its definition
            logger.error("the job definition `%s` is kept", job.name)
            raise
        except BaseException as err:  # also for a signal: a submitted job must not run unnoticed
            _undo_submission(batch, job, definition, submitted=not isinstance(err, TorchXError))
            raise


def _register(batch: AwsService, job: BatchJob) -> str:
    return exactly_once(
        lambda: str(batch.call_once("register_job_definition", **job.job_def)["jobDefinitionArn"]),
        lambda: _find_definition(batch, job.name),
        f"the job definition `{job.name}`",
    )


def _submit(batch: AwsService, job: BatchJob) -> str:
    params = job.submission(job.name)
    return exactly_once(
        lambda: str(batch.call_once("submit_job", **params)["jobArn"]),
        lambda: find_job(batch, job.queue, job.name),
        f"the job `{job.name}` in the queue `{job.queue}`",
    )


def _find_definition(batch: AwsService, name: str) -> str | None:
    found = batch.items(
        "describe_job_definitions", "jobDefinitions", jobDefinitionName=name, status="ACTIVE"
    )
    return next((str(definition["jobDefinitionArn"]) for definition in found), None)


def find_job(batch: AwsService, queue: str, name: str) -> str | None:
    """Returns the ARN of the job of that name; ``None`` if it, or the queue, is missing."""
    filters = [{"name": "JOB_NAME", "values": [name]}]
    try:
        for job in batch.items("list_jobs", "jobSummaryList", jobQueue=queue, filters=filters):
            if job.get("jobName", name) == name:  # the service ignores case
                return str(job["jobArn"])
    except AwsRefused as err:
        if not _is_missing(err):
            raise
    return None


def find_app(batch: AwsService, app_id: str) -> str | None:
    """Returns the ARN of an app's job, given ``queue:name``, or the name alone as seen inside a
    job; then all queues are searched.
    """
    queue, colon, name = app_id.rpartition(":")
    if not name or (colon and not queue):
        return None
    queues = [queue] if colon else queue_names(batch)
    found = (find_job(batch, queue, name) for queue in queues)
    return next((arn for arn in found if arn is not None), None)


def queue_names(batch: AwsService) -> list[str]:
    """Returns the names of all queues of the region."""
    queues = batch.items("describe_job_queues", "jobQueues")
    return [str(queue["jobQueueName"]) for queue in queues]


def _is_missing(err: AwsRefused) -> bool:
    words = str(err).lower()
    return "does not exist" in words or "not found" in words


def _undo_submission(
    batch: AwsService, job: BatchJob, definition: str | None, *, submitted: bool
) -> None:
    """Rolls back a failed submission: ends the job and deregisters the definition.

    Args:
        definition: its ARN; ``None`` if it is unknown whether there is one.
    """
    try:
        definition = definition or _find_definition(batch, job.name)
        if definition is None:
            return
        arn = find_job(batch, job.queue, job.name) if submitted else None
        if arn is not None:
            terminate(batch, arn.rpartition("/")[2], "its submission was interrupted")
        deregister(batch, definition)
    except TorchXError as err:
        logger.error(
            "the job definition `%s` may be left, `aws batch deregister-job-definition "
            "--job-definition %s` removes it: %s",
            job.name,
            definition or job.name,
            err,
        )


# -- looking -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looked:
    """The records of a job and its nodes, by index."""

    job: Record
    nodes: Mapping[int, Record]
    calls: int = 1


class JobTable:
    """Caches DescribeJobs, so that waiting for many apps in one process takes one query for all.

    A query of one app includes others that were queried recently and have not ended; their own
    queries within a second use that result.
    """

    def __init__(self, batch: AwsService) -> None:
        self._batch = batch
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[str, ...]] = {}
        """Ids of each job: its own, and those of its nodes once they may exist."""
        self._watched: dict[str, float] = {}
        """When each live job was last queried."""
        self._recent: dict[str, tuple[float, dict[str, Record]]] = {}
        """Records of jobs that were included in other queries."""

    def look(self, arn: str, nodes: Iterable[int] | None = None) -> Looked | None:
        """Returns the job with its nodes; ``None`` if the service has forgotten it.

        Args:
            nodes: indexes of the requested nodes; ``None`` for all.
        """
        with self._lock:
            return self._look(arn, None if nodes is None else [*nodes])

    def _look(self, arn: str, nodes: Sequence[int] | None) -> Looked | None:
        records, calls = self._ask(arn, self._ids.get(arn, (arn,)) if nodes is None else (arn,))
        job = records.get(arn)
        if job is None:
            self.forget(arn)
            return None
        wanted = _node_ids(arn, job, nodes)
        missing = [node for node in wanted.values() if node not in records]
        if missing and _may_have_nodes(job):
            more, further = describe(self._batch, missing)
            records.update(more)
            calls += further
        if nodes is None:
            self._note(arn, job, (arn, *wanted.values()))
        found = {index: records[node] for index, node in wanted.items() if node in records}
        return Looked(job, found, calls)

    def _ask(self, arn: str, ids: Sequence[str]) -> tuple[dict[str, Record], int]:
        """Returns the records of these ids, maybe slightly outdated, and the number of calls."""
        now = time.monotonic()
        moment, records = self._recent.pop(arn, (0.0, {}))
        if records and now - moment < _TOGETHER_S:
            return records, 0
        others = {
            other: self._ids[other]
            for other, looked in self._watched.items()
            if other != arn and now - looked < _WATCHED_S
        }
        found, calls = describe(self._batch, [*ids, *(i for also in others.values() for i in also)])
        for other, also in others.items():
            self._recent[other] = now, {i: found[i] for i in also if i in found}
        return found, calls

    def _note(self, arn: str, job: Record, ids: tuple[str, ...]) -> None:
        self._ids[arn] = ids if _may_have_nodes(job) else (arn,)
        if is_terminal(state_of(job.get("status"))):
            self._watched.pop(arn, None)
        else:
            self._watched[arn] = time.monotonic()

    def expect(self, arn: str) -> None:
        """Includes a submitted job in queries of others."""
        self._ids[arn] = (arn,)
        self._watched[arn] = time.monotonic()

    def forget(self, arn: str) -> None:
        """Drops the records of a job that was changed."""
        self._watched.pop(arn, None)
        self._recent.pop(arn, None)


def _node_ids(arn: str, job: Record, nodes: Sequence[int] | None) -> dict[int, str]:
    if not is_multinode(job):
        return {}
    count = int(job["nodeProperties"].get("numNodes") or 0)
    return {i: f"{arn}#{i}" for i in (range(count) if nodes is None else nodes)}


def _may_have_nodes(job: Record) -> bool:
    """Returns True if the service may have started to launch the nodes."""
    return job.get("status") not in ("SUBMITTED", "PENDING", "RUNNABLE") or bool(
        job.get("attempts")
    )


def describe(batch: AwsService, ids: Sequence[str]) -> tuple[dict[str, Record], int]:
    """Returns records by id, without unknown ones, and the number of calls."""
    found: dict[str, Record] = {}
    calls = 0
    for at in range(0, len(ids), DESCRIBED_AT_ONCE):
        asked = ids[at : at + DESCRIBED_AT_ONCE]
        records = batch.call("describe_jobs", jobs=[*asked]).get("jobs") or []
        calls += 1
        for record in records:
            arn = record.get("jobArn")
            found[str(arn) if arn in asked or len(asked) > 1 else asked[0]] = record
    return found, calls


class Explanations:
    """The reasons why jobs wait, requested now and then."""

    def __init__(self, batch: AwsService) -> None:
        self._batch = batch
        self._known: dict[str, tuple[float, str]] = {}

    def explain(self, job: Record) -> str:
        """Returns the reason of a job that has waited for long without one; else an empty text."""
        waited_s = time.time() - int(job.get("createdAt") or 0) / 1000
        arn = str(job.get("jobArn"))
        waits = state_of(job.get("status")) is AppState.PENDING
        if not waits or job.get("statusReason") or waited_s < _EXPLAINED_AFTER_S:
            self._known.pop(arn, None)
            return ""
        asked, words = self._known.get(arn, (0.0, ""))
        now = time.monotonic()
        if not asked or now - asked > _EXPLAIN_AGAIN_S:
            words = self._ask(job)
            self._known[arn] = now, words
        return words

    def _ask(self, job: Record) -> str:
        queue = str(job.get("jobQueue") or "")
        try:
            answer = self._batch.call("describe_job_queues", jobQueues=[queue])
            described: Mapping[str, Any] = next(iter(answer.get("jobQueues") or ()), {})
            order = described.get("computeEnvironmentOrder") or ()
            names = [str(item["computeEnvironment"]) for item in order]
            environments: Sequence[Mapping[str, Any]] = ()
            if names:
                environments = self._batch.call(
                    "describe_compute_environments", computeEnvironments=names
                )["computeEnvironments"]
            words = why_waiting(job, described, environments)
            if words or job.get("status") != "RUNNABLE":
                return words
            return place_in_queue(job, self._batch.call("get_job_queue_snapshot", jobQueue=queue))
        except TorchXError as err:  # the query itself succeeded
            logger.debug("the reason why `%s` waits is not known: %s", job.get("jobName"), err)
            return ""


# -- listing -------------------------------------------------------------------------------------


def list_jobs(batch: AwsService, queue: str | None) -> list[tuple[str, Record]]:
    """Returns all jobs of TorchX with the names of their queues, latest first.

    Args:
        queue: name of one queue; ``None`` for all.
    """
    pending: list[tuple[str, str]] = []
    found: list[tuple[str, Record]] = []
    for name, summary in _summaries(batch, queue):
        pending.append((name, str(summary["jobArn"])))
        if len(pending) == DESCRIBED_AT_ONCE:
            found += _ours(batch, pending)
            pending = []
    found += _ours(batch, pending)
    return sorted(found, key=lambda item: int(item[1].get("createdAt") or 0), reverse=True)


def _summaries(batch: AwsService, queue: str | None) -> Iterator[tuple[str, Record]]:
    names = queue_names(batch) if queue is None else [queue]
    # without a filter only running ones are listed
    everything = [{"name": "AFTER_CREATED_AT", "values": ["1"]}]
    for name in names:
        for summary in batch.items(
            "list_jobs", "jobSummaryList", jobQueue=name, filters=everything
        ):
            yield queue_name(name), summary


def _ours(batch: AwsService, jobs: Sequence[tuple[str, str]]) -> list[tuple[str, Record]]:
    if not jobs:
        return []
    records, _ = describe(batch, [arn for _, arn in jobs])
    return [
        (name, records[arn])
        for name, arn in jobs
        if arn in records and TAG_TORCHX_VER in (records[arn].get("tags") or {})
    ]


# -- ending --------------------------------------------------------------------------------------


def terminate(batch: AwsService, job_id: str, reason: str) -> None:
    """Requests the end of a job, in any state."""
    batch.call("terminate_job", jobId=job_id, reason=reason)


def deregister(batch: AwsService, definition: str) -> None:
    """Deregisters a definition; its jobs go on. A missing one is not an error."""
    try:
        batch.call("deregister_job_definition", jobDefinition=definition)
    except AwsRefused as err:
        if not _is_missing(err):
            raise
