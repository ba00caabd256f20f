"""Builds the native request: the objects of the chosen kind. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx.errors import InvalidInput
from torchx.schedulers._kube.apps.gate import build_gate
from torchx.schedulers._kube.apps.labels import app_labels
from torchx.schedulers._kube.apps.text import render_objects
from torchx.specs.api import AppDef

from ._indexed_job import build_jobs, build_service
from ._job_set import build_job_set
from ._names import app_name, volcano_name
from ._options import Opts
from ._plan import Facts, Plan
from ._volcano import build_volcano_job

BUILDERS: Mapping[str, Callable[[Plan], list[dict[str, Any]]]] = {
    "job": build_jobs,
    "jobset": build_job_set,
    "volcano": build_volcano_job,
}
"""Builders by the value of the option ``job_api``."""


@dataclass(repr=False)
class KubernetesJob:
    """The native request of ``kubernetes``. Its text is the YAML of the objects.

    Args:
        jobs: the main objects: Jobs in the order of the roles, one JobSet, or one Job of Volcano.
        service: ``None`` for a single replica, and if the cluster creates it.
        gate: created last, to start all Jobs at once; ``None`` if there is one main object.
        context, kubeconfig: the cluster; ``None`` for the user's default.
        api: kind of the main objects.
    """

    name: str
    namespace: str
    jobs: list[dict[str, Any]]
    service: dict[str, Any] | None = None
    gate: dict[str, Any] | None = None
    context: str | None = None
    kubeconfig: str | None = None
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    api: str = "job"

    @property
    def app_id(self) -> str:
        """The app's id in the scheduler."""
        return f"{self.namespace}:{self.name}"

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All objects, in the order of their creation."""
        return [*self.jobs, *(obj for obj in (self.service, self.gate) if obj is not None)]

    @property
    def resource(self) -> dict[str, Any]:
        """The main object; with several Jobs that of the first role."""
        return self.jobs[0]

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


def render_request(job: KubernetesJob) -> str:
    """Renders the objects as YAML documents."""
    return render_objects(job.objects)


def build_request(app: AppDef, unique: str, opts: Opts, facts: Facts) -> KubernetesJob:
    """Builds the request of an app, which is not changed.

    Args:
        unique: name of the app with a random id at its end.

    Raises:
        InvalidInput: for invalid options, and roles that cannot be pods.
        UnsupportedRequest: for features that this kind of objects does not have.
    """
    check_options(opts)
    if not app.roles:
        raise InvalidInput(f"app `{app.name}` has no roles")
    for role in app.roles:
        if role.num_replicas < 1:
            msg = f"role `{role.name}` has {role.num_replicas} replicas, a Job needs one at least"
            raise InvalidInput(msg)
    name = volcano_name(unique) if facts.api == "volcano" else app_name(unique)
    plan = Plan(app, name, opts, facts)
    jobs = BUILDERS[facts.api](plan)
    service = build_service(plan) if facts.api == "job" else None
    gate = build_gate(name, facts.namespace, app_labels(app, name)) if len(jobs) > 1 else None
    return KubernetesJob(
        name, facts.namespace, jobs, service, gate, opts.context, opts.kubeconfig, api=facts.api
    )


_COUNTS = (
    "ttl_s",
    "active_deadline_s",
    "grace_s",
    "reserved_millicpu",
    "reserved_memmb",
    "efa_device_count",
)


def check_options(opts: Opts) -> None:
    """Refuses values that no cluster accepts.

    Raises:
        InvalidInput: with the option, its value and the allowed ones.
    """
    if opts.job_api is not None and opts.job_api not in BUILDERS:
        msg = f"option `job_api` is one of {', '.join(BUILDERS)}, given: `{opts.job_api}`"
        raise InvalidInput(msg)
    for name in _COUNTS:
        value = getattr(opts, name)
        if value is not None and value < 0:
            raise InvalidInput(f"option `{name}` must not be negative, given: {value}")
