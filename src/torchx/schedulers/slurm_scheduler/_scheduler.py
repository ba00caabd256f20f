"""``slurm``: runs apps as batch jobs of a Slurm cluster."""

import builtins
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx._files import exclusive_lock, replace_file
from torchx.errors import InvalidInput, LogsNotFound, UnknownApp
from torchx.schedulers.api import (
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    Scheduler,
    SchedulerFeatures,
    Stream,
)
from torchx.specs.api import (
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    RetryPolicy,
    Role,
    is_terminal,
    runopts,
)
from torchx.workspace.api import MultiWorkspaceMixin

from ._options import SlurmOpts
from ._request import Facts, SlurmBatchRequest, build_request, with_images
from ._workspace import workspace_builders

if TYPE_CHECKING:
    from datetime import datetime

    from torchx.workspace.api import WorkspaceMixin

    from ._index import Place, Progress
    from ._states import NativeJob, Shown

SCRIPT = "torchx-sbatch.sh"
NEW_JOB_S = 10.0
"""How long a job that was just submitted may be missing from what Slurm tells."""
_FINAL_FOR_S = 60.0


class SlurmScheduler(MultiWorkspaceMixin, Scheduler[SlurmOpts]):
    """Runs apps with sbatch and finds them again from any machine of the cluster.

    Args:
        docker_client: for the ``docker`` workspace builder; made when it is needed.
    """

    features = SchedulerFeatures(
        separate_streams=True,
        durable=True,
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.APPLICATION}),
        min_replicas=True,
        event_wait=True,
    )

    def __init__(self, session_name: str, docker_client: object = None) -> None:
        super().__init__("slurm", session_name)
        self._docker_client = docker_client
        self._made_builders: Mapping[str, WorkspaceMixin[Any]] | None = None
        self._submitted: dict[str, tuple[float, Place]] = {}
        """When (monotonic clock) and where, by the id of the app."""
        self._final: dict[str, tuple[float, NativeJob]] = {}
        """What sacct told of jobs that have ended, and when."""

    # -- requests ---------------------------------------------------------------------------

    def _run_opts(self) -> runopts:
        return SlurmOpts.as_runopts()

    def workspace_builders(self) -> "Mapping[str, WorkspaceMixin[Any]]":
        """The builders by the value of ``workspace_type``, the default first."""
        if self._made_builders is None:
            self._made_builders = workspace_builders(self._docker_client)
        return self._made_builders

    def _validate(self, app: AppDef, scheduler: str, cfg: object = None) -> None:
        """A role without a resource is accepted: the cluster has defaults."""

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        from ._options import check_options
        from ._request import check_role

        if isinstance(cfg, Mapping):
            check_options(cfg)
        for role in app.roles:
            check_role(role, in_container=True)

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
        import copy

        import torchx.schedulers.slurm_scheduler as package

        builder, _ = self.workspace_builder(cfg)
        # the names of images that are to be pushed are put into the roles
        named = copy.copy(app)
        named.roles = [copy.copy(role) for role in app.roles]
        images = self.dryrun_push_images(named, cfg)
        job_dir = cfg.get("job_dir")
        work_dirs = _copies_in(named.roles, str(job_dir)) if builder == "dir" and job_dir else {}
        facts = Facts()
        if any(role.resource.memMB > 0 for role in app.roles):
            partition = cfg.get("partition")
            first = str(partition).partition(",")[0] if partition else None
            facts = Facts(partition_mem_mb=package._partition_memmb(first))
        request = build_request(named, cfg, facts, builder, images, work_dirs)
        return AppDryRunInfo(request, repr)

    # -- submitting -------------------------------------------------------------------------

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmBatchRequest]) -> str:
        """Submits the job and returns its id.

        Raises:
            JobStartError: if Slurm refuses it, with its own words.
            BackendUnavailable: if Slurm cannot be reached.
        """
        import tempfile

        request = dryrun_info.request
        if request.images_to_push is not None:
            self.push_images(request.images_to_push)
            _, builder = self.workspace_builder(
                {self.WORKSPACE_TYPE_OPT: request.images_to_push[0]}
            )
            # a tag can be moved to another image before the job starts
            request = with_images(request, builder.pushed_image)
        if request.job_dir is None:
            with tempfile.TemporaryDirectory(prefix="torchx-sbatch-") as folder:
                return self._submit(request, folder, os.getcwd())
        job_dir = os.path.abspath(os.path.expanduser(request.job_dir))
        try:
            os.makedirs(job_dir, exist_ok=True)
        except OSError as err:
            msg = f"option `job_dir`: cannot make `{job_dir}`: {err.strerror}"
            raise InvalidInput(msg) from None
        # nobody else replaces the script until sbatch has read it
        with exclusive_lock(os.path.join(job_dir, f".{SCRIPT}.lock")):
            return self._submit(request, job_dir, job_dir)

    def _submit(self, request: SlurmBatchRequest, folder: str, work_dir: str) -> str:
        from torchx.schedulers.ids import random_id

        from . import _client, _index
        from ._script import mark, record_of

        token = random_id()
        path = os.path.join(folder, SCRIPT)
        script = request.materialize().encode(errors="surrogateescape")
        replace_file(path, script, mode=0o600)  # it holds the environment
        argv = list(request.cmd)
        if request.job_dir is not None:
            argv.append(f"--chdir={work_dir}")
        argv += [path, mark(token, request.app_name)]
        app_id, cluster = _client.submit(argv, token)
        place = _index.Place(work_dir, token, cluster, record_of(request))
        self._submitted[app_id] = (time.monotonic(), place)
        _index.remember(app_id, place)
        if request.job_dir is not None:
            try:
                _index.save_job_dir(app_id, work_dir)
            except OSError as err:
                _client.logger.warning(
                    "cannot note the job in `%s`: %s", _index.SLURM_JOB_DIRS, err.strerror
                )
        return app_id

    # -- looking ----------------------------------------------------------------------------

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """State, roles and replicas of a job; ``None`` if nothing is known of it."""
        from ._states import response

        shown = self._look(app_id)
        return response(shown) if shown is not None else None

    def _look(self, app_id: str) -> "Shown | None":
        from . import _index
        from ._states import Shown

        if not _is_job_id(app_id):
            return None
        native = self._native(app_id)
        place = self._place(app_id, native)
        progress, record = _read(place, app_id)
        if native is None and (progress is None or progress.end is None):
            return None
        return Shown(app_id, native, progress, _index.roles_of(record))

    def _native(self, app_id: str) -> "NativeJob | None":
        """What squeue tells of the job, or else sacct."""
        from . import _client

        known = self._final.get(app_id)
        if known is not None and time.monotonic() - known[0] < _FINAL_FOR_S:
            return known[1]
        cluster = self._cluster(app_id)
        queue = _client.queue(cluster)
        asked = time.monotonic()
        job = queue.jobs().get(app_id)
        if job is not None:
            return job
        submitted = self._submitted.get(app_id)
        if submitted is not None and time.monotonic() - submitted[0] < NEW_JOB_S:
            return _just_submitted(app_id, submitted[1])
        job = _client.accounting(app_id, cluster)
        if job is None:
            # it may be younger than the answer that was at hand
            return queue.jobs(newer_than=asked).get(app_id)
        if is_terminal(job.state):
            self._final[app_id] = (time.monotonic(), job)
        return job

    def _cluster(self, app_id: str) -> str:
        from ._index import recall

        submitted = self._submitted.get(app_id)
        place = submitted[1] if submitted is not None else recall(app_id)
        return place.cluster if place is not None else ""

    def _place(self, app_id: str, native: "NativeJob | None" = None) -> "Place | None":
        """Where the files of a job are, as the submitter noted it or as Slurm tells."""
        from . import _index
        from ._script import parse_mark

        submitted = self._submitted.get(app_id)
        if submitted is not None:
            return submitted[1]
        noted = _index.recall(app_id)
        told = parse_mark(native.command) if native is not None else None
        if noted is not None and (told is None or told[0] == noted.token):
            return noted
        token = told[0] if told is not None else ""
        if native is not None and native.work_dir:
            return _index.Place(native.work_dir, token)
        job_dir = _index.get_job_dirs().get(app_id)
        if job_dir is not None:
            return _index.Place(os.path.abspath(job_dir), token)
        here = _index.Place(os.getcwd(), token)
        return here if native is not None or _index.notes_dir(here, app_id) else None

    def _describe_squeue(self, app_id: str) -> DescribeAppResponse | None:
        """What squeue alone tells of a job."""
        from . import _client
        from ._states import Shown, response

        job = _client.queue(self._cluster(app_id)).jobs().get(app_id)
        return response(Shown(app_id, job)) if job is not None else None

    def _describe_sacct(self, app_id: str) -> DescribeAppResponse | None:
        """What sacct alone tells of a job."""
        from . import _client
        from ._states import Shown, response

        job = _client.accounting(app_id, self._cluster(app_id))
        return response(Shown(app_id, job)) if job is not None else None

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when the job noted something, or when Slurm may have news."""
        from ._index import notes_dir

        deadline = time.monotonic() + timeout_s
        place = self._place(app_id)
        before = _notes_state(notes_dir(place, app_id) if place else None)
        if place is None or _is_over(place, app_id):
            # what is left is done by Slurm itself, which is asked once a second
            time.sleep(min(timeout_s, 1.0))
            return
        pause_s = 0.05
        deadline = min(deadline, time.monotonic() + _LONGEST_WAIT_S)
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_s, left_s))
            pause_s = min(1.3 * pause_s, 0.5)
            if _notes_state(notes_dir(place, app_id)) != before:
                return

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> "builtins.list[FailedReplica]":
        """The replicas whose latest attempt failed by itself, the first failure first."""
        from . import _logs
        from ._index import log_path
        from ._states import describe_code, signed

        shown = self._look(app_id)
        if shown is None or shown.progress is None:
            return []
        place = self._place(app_id, shown.native)
        progress = shown.progress
        if place is None or (shown.native and shown.native.state is AppState.CANCELLED):
            return []
        found = []
        for index, k in progress.failures:
            if index >= len(shown.roles):
                continue
            role = shown.roles[index].name
            code = progress.codes[index, k]
            attempt = progress.attempt
            found.append(
                FailedReplica(
                    role=role,
                    replica=k,
                    attempt=attempt,
                    exit_code=signed(code),
                    reason=describe_code(code),
                    log_path=log_path(place.work_dir, app_id, role, k, attempt, "err"),
                    last_lines=_logs.last_lines(
                        place.work_dir, app_id, role, k, attempt, max_lines
                    ),
                )
            )
        return found

    # -- ending -----------------------------------------------------------------------------

    def _cancel_existing(self, app_id: str) -> None:
        from . import _client

        _client.cancel(app_id, self._cluster(app_id))

    # -- logs -------------------------------------------------------------------------------

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Lines of one replica, all its attempts in order.

        Of both streams (``COMBINED``, the default), those of stdout come first in what was
        written before the call; later lines come as they are written.

        Raises:
            UnknownApp: (a ``KeyError``) if nothing is known of the job.
            LogsNotFound: (a ``RuntimeError``) if there is no such role or replica.
        """
        from . import _logs

        stream = Stream(streams) if streams is not None else Stream.COMBINED
        if since is not None or until is not None:
            warnings.warn(
                "slurm keeps no times of log lines: `since` and `until` are ignored",
                UserWarning,
                stacklevel=2,
            )
        place, roles = self._logs_of(app_id)
        _check_replica(app_id, roles, role_name, k)
        replica = _logs.Replica(place, app_id, role_name, k, stream, lambda: self._ended(app_id))
        lines: Iterator[str] = replica.follow() if should_tail else replica.now()
        if regex is None:
            return lines
        from torchx.schedulers._log_filter import lines_matching

        return lines_matching(lines, regex)

    def _logs_of(self, app_id: str) -> "tuple[Place, builtins.list[tuple[str, int]]]":
        """Where the logs are, and names and sizes of the roles; empty if they are not known."""
        from . import _index

        place = self._place(app_id)
        record = place.record if place is not None else None
        if place is not None and record is None:
            record = _read(place, app_id)[1]
        if place is not None and record is not None:
            return place, [(r.name, r.replicas) for r in _index.roles_of(record)]
        shown = self._look(app_id)
        if shown is None:
            msg = f"there is no Slurm job `{app_id}`; `torchx list -s slurm` shows yours"
            raise UnknownApp(msg)
        place = self._place(app_id, shown.native) or _index.Place(os.getcwd())
        found = [(role.name, role.replicas) for role in shown.roles]
        if not found and shown.native is not None:
            from ._states import response

            found = [(r.name, r.num_replicas) for r in response(shown).roles]
        return place, found

    def _ended(self, app_id: str) -> bool:
        """Whether Slurm says that the job has ended; false if it cannot be reached."""
        from torchx.errors import BackendUnavailable

        try:
            native = self._native(app_id) if _is_job_id(app_id) else None
        except BackendUnavailable:
            return False
        return native is None or is_terminal(native.state)

    # -- lists; last: below this line `list` is the method ------------------------------------

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> "builtins.list[ListAppResponse]":
        """This user's jobs of TorchX in the last two weeks, the latest first."""
        found = {row.app_id: row for row in self._list_sacct() or ()}
        # accounting lags behind by up to some seconds, and may be absent
        found.update((row.app_id, row) for row in self._list_squeue())
        return sorted(found.values(), key=lambda row: -int(row.app_id))

    def _list_sacct(self) -> "builtins.list[ListAppResponse] | None":
        """The jobs that accounting knows; ``None`` if there is no accounting."""
        from . import _client

        return _client.accounted_rows()

    def _list_squeue(self) -> "builtins.list[ListAppResponse]":
        """The jobs that the controller knows: those that wait, run, or ended lately."""
        from . import _client

        return _client.queued_rows()


def _copies_in(roles: "builtins.list[Role]", job_dir: str) -> dict[str, str]:
    """By the names of roles, where those run whose workspace is not that of the ``job_dir`` itself.

    The images of roles that have a copy become absolute: the job runs in the ``job_dir``, where a
    relative path is another one.
    """
    top = os.path.abspath(os.path.expanduser(job_dir))
    found = {}
    for role in roles:
        path = os.path.abspath(os.path.expanduser(role.image))
        inside = path.startswith(os.path.join(top, ""))
        if role.workspace or (role.image and inside and _is_copy(path)):
            role.image = path
            if inside:
                found[role.name] = path
    return found


def _is_copy(path: str) -> bool:
    """Whether it is that of a workspace which was built before, and its role made to have none."""
    from torchx.workspace import _copies

    return os.path.isdir(path) and _copies.is_copy(path)


_LONGEST_WAIT_S = 30.0
"""A job that is cancelled before it starts leaves no note."""


def _is_job_id(app_id: str) -> bool:
    return app_id.isascii() and app_id.isdecimal()


def _check_replica(app_id: str, roles: "list[tuple[str, int]]", role_name: str, k: int) -> None:
    from ._request import safe_name

    if not roles:
        return
    counts = dict(roles)
    count = counts.get(role_name, counts.get(safe_name(role_name)))
    if count is None:
        msg = f"job `{app_id}` has no role `{role_name}`, it has: {', '.join(counts)}"
        raise LogsNotFound(msg)
    if not 0 <= k < count:
        msg = f"role `{role_name}` of job `{app_id}` has replicas 0 to {count - 1}, given: {k}"
        raise LogsNotFound(msg)


def _read(place: "Place | None", app_id: str) -> "tuple[Progress | None, dict[str, object] | None]":
    """The notes of a job, and the record of its roles."""
    from . import _index

    if place is None:
        return None, None
    path = _index.notes_dir(place, app_id)
    progress = _index.read_progress(path) if path is not None else None
    return progress, place.record or _index.read_record(path)


def _notes_state(path: str | None) -> object:
    if path is None:
        return None
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _is_over(place: "Place", app_id: str) -> bool:
    progress, _ = _read(place, app_id)
    return progress is not None and progress.over


def _just_submitted(app_id: str, place: "Place") -> "NativeJob":
    from ._index import roles_of
    from ._request import safe_name
    from ._states import Component, NativeJob

    components = tuple(
        Component(f"{safe_name(role.name)}-0", AppState.PENDING, "PENDING")
        for role in roles_of(place.record)
    )
    return NativeJob(app_id, components, place.work_dir)


def create_scheduler(
    session_name: str, docker_client: object = None, **kwargs: object
) -> SlurmScheduler:
    """Makes the scheduler; unknown keywords are ignored, since all factories get the same."""
    return SlurmScheduler(session_name, docker_client)
