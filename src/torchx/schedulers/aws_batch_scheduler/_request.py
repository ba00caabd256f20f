"""Builds the native request: the definition of a job, and its submission. Pure.

An app of one replica is a job of one container, which is cheaper, reports its exit code and also
runs on Fargate; an app of several replicas is a multi-node parallel job with a node group for each
role.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.devices import get_device_mounts
from torchx.specs.api import AppDef, Role, VolumeMount

from ._command import Place, build_command
from ._mounts import build_mounts
from ._options import Opts, check_options, parse_secrets, parse_ulimits
from ._resources import (
    INSTANCE_TYPE,
    BeyondService,
    fargate_requirements,
    resource_requirements_from_resource,
)
from ._tags import Facts, build_tags

MOST_ROLES = 5
MOST_ATTEMPTS = 10
NAME_CHARS = 128

_EXIT_WHEN_WELL = {"onExitCode": "0", "action": "EXIT"}
_SPOT_ONLY = (
    {"onStatusReason": "Host EC2*", "action": "RETRY"},
    {"onReason": "*", "action": "EXIT"},
)
"""Retry only if a spot instance was reclaimed."""
_NOT_IN_NAME = re.compile("[^A-Za-z0-9_-]")

logger = get_logger(__name__)


@dataclass(repr=False)
class BatchJob:
    """The native request of ``aws_batch``. Its text is YAML.

    Args:
        name: name of the job and of its definition.
        job_def: parameters of RegisterJobDefinition.
        images_to_push: repository and tag of each image that is not in a registry yet.
        region, profile: ``None`` for the user's defaults.
    """

    name: str
    queue: str
    share_id: str | None
    job_def: dict[str, Any]
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    region: str | None = None
    profile: str | None = None

    @property
    def app_id(self) -> str:
        """The app's id in the scheduler."""
        return f"{queue_name(self.queue)}:{self.name}"

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The properties of the containers of each role."""
        if "containerProperties" in self.job_def:
            return [self.job_def["containerProperties"]]
        return [
            group["container"] for group in self.job_def["nodeProperties"]["nodeRangeProperties"]
        ]

    def submission(self, definition: str) -> dict[str, Any]:
        """Returns the parameters of SubmitJob.

        Args:
            definition: the ARN of the definition that was registered, or its name.
        """
        params: dict[str, Any] = {
            "jobName": self.name,
            "jobQueue": self.queue,
            "jobDefinition": definition,
            "tags": self.job_def["tags"],
        }
        if self.share_id is not None:
            params["shareIdentifier"] = self.share_id
        return params

    def __repr__(self) -> str:
        return render_request(self)

    __str__ = __repr__


def render_request(job: BatchJob) -> str:
    """Renders the request as YAML: the definition, and the submission."""
    import yaml

    dumper: Any = type("Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
    dumper.ignore_aliases = lambda self, data: True
    whole = {
        "name": job.name,
        "queue": job.queue,
        "share_id": job.share_id,
        "job_def": job.job_def,
        "images_to_push": {name: [*where] for name, where in job.images_to_push.items()},
    }
    text = yaml.dump(whole, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return str(text)


def queue_name(queue: str) -> str:
    """Returns the name of a queue, given its name or its ARN.

    >>> queue_name("arn:aws:batch:eu-west-1:1:job-queue/gpu"), queue_name("gpu")
    ('gpu', 'gpu')
    """
    return queue.rpartition("/")[2]


def job_name(unique: str) -> str:
    """Converts a name that ends with a random id to the name of a job and its definition.

    >>> job_name("my.app-x7c2"), job_name("-x7c2")
    ('my_app-x7c2', 'app-x7c2')
    """
    name = _NOT_IN_NAME.sub("_", unique)
    if not name[0].isalnum():
        name = f"app{name}" if name[0] == "-" else f"app-{name}"
    if len(name) <= NAME_CHARS:
        return name
    start, _, end = name.rpartition("-")
    return f"{start[: NAME_CHARS - len(end) - 1]}-{end}"


def build_request(app: AppDef, unique: str, opts: Opts, facts: Facts) -> BatchJob:
    """Builds the request of an app, which is not changed.

    Args:
        unique: name of the app with a random id at its end.

    Raises:
        InvalidInput: for values that the service does not accept.
    """
    check_options(opts)
    _check_app(app)
    name = job_name(unique)
    tags = build_tags(app, opts, facts)
    instance = _instance_type(app)
    several = sum(role.num_replicas for role in app.roles) > 1 or instance is not None
    retry = _retry_strategy(app, opts, several)
    retried = retry["attempts"] > 1
    job_def: dict[str, Any] = {"jobDefinitionName": name}
    if several:
        _check_multinode(app, opts)
        job_def["type"] = "multinode"
        job_def["nodeProperties"] = _node_properties(app, name, opts, instance, retried)
    else:
        place = Place(0, retried=retried)
        job_def["type"] = "container"
        job_def["containerProperties"] = _container(app.roles[0], name, place, opts)
        job_def["platformCapabilities"] = [opts.platform.upper()]
    job_def["retryStrategy"] = retry
    job_def["tags"] = tags
    if opts.propagate_tags:
        job_def["propagateTags"] = True
    if opts.timeout_s is not None:
        job_def["timeout"] = {"attemptDurationSeconds": opts.timeout_s}
    if opts.share_id is not None:
        job_def["schedulingPriority"] = opts.priority
    elif opts.priority:
        logger.warning("option `priority` has no effect without `share_id`")
    return BatchJob(
        name, opts.queue, opts.share_id, job_def, region=opts.region, profile=opts.profile
    )


def _check_app(app: AppDef) -> None:
    if not app.roles:
        raise InvalidInput(f"app `{app.name}` has no roles")
    if len(app.roles) > MOST_ROLES:
        msg = (
            f"AWS Batch runs {MOST_ROLES} roles at most, app `{app.name}` has {len(app.roles)}: "
            f"{', '.join(role.name for role in app.roles)}"
        )
        raise BeyondService(msg)
    for role in app.roles:
        if role.num_replicas < 1:
            msg = f"role `{role.name}` has {role.num_replicas} replicas, one at least is needed"
            raise InvalidInput(msg)
        if not role.image:
            raise InvalidInput(f"role `{role.name}` has no image, which its containers need")
        if not role.entrypoint:
            raise InvalidInput(f"role `{role.name}` has no entrypoint")


def _check_multinode(app: AppDef, opts: Opts) -> None:
    why = "an app of several replicas, or with a type of instances, is a multi-node parallel job"
    if opts.platform == "fargate":
        raise UnsupportedRequest(f"{why}, which fargate does not run: use `platform=ec2`")
    if opts.spot:
        raise UnsupportedRequest(f"{why}, which AWS Batch does not run on spot: leave `spot` out")


def _instance_type(app: AppDef) -> str | None:
    """Returns the instance type that the app requests; one for all of its nodes."""
    types = {
        str(role.resource.capabilities[INSTANCE_TYPE]): role.name
        for role in app.roles
        if INSTANCE_TYPE in role.resource.capabilities
    }
    if len(types) > 1:
        given = ", ".join(f"{role}: {kind}" for kind, role in types.items())
        msg = f"a job of AWS Batch has one type of instances for all of its roles, given: {given}"
        raise InvalidInput(msg)
    return next(iter(types), None)


def _retry_strategy(app: AppDef, opts: Opts, several: bool) -> dict[str, Any]:
    retries = max(role.max_retries for role in app.roles)
    if retries + 1 > MOST_ATTEMPTS:
        msg = (
            f"AWS Batch makes {MOST_ATTEMPTS} attempts at most: `max_retries` can be "
            f"{MOST_ATTEMPTS - 1}, given: {retries}"
        )
        raise InvalidInput(msg)
    if opts.spot and not several:
        if retries:
            msg = (
                "option `spot` and `max_retries` exclude each other: AWS Batch counts an instance "
                f"that was taken away as a retry; given `max_retries`: {retries}"
            )
            raise InvalidInput(msg)
        return {"attempts": MOST_ATTEMPTS, "evaluateOnExit": [dict(rule) for rule in _SPOT_ONLY]}
    return {"attempts": retries + 1, "evaluateOnExit": [dict(_EXIT_WHEN_WELL)]}


# -- containers ----------------------------------------------------------------------------------


def _node_properties(
    app: AppDef, name: str, opts: Opts, instance: str | None, retried: bool
) -> dict[str, Any]:
    if instance is None:
        logger.info(
            "no role has the capability `%s` in its resource: AWS Batch chooses the instances",
            INSTANCE_TYPE,
        )
    groups = []
    first = 0
    for i, role in enumerate(app.roles):
        container = _container(role, name, Place(i, first, retried), opts)
        if instance is not None:
            container["instanceType"] = instance
        groups.append(node_group(first, role.num_replicas, container))
        first += role.num_replicas
    return {"numNodes": first, "mainNode": 0, "nodeRangeProperties": groups}


def node_group(first: int, count: int, container: dict[str, Any]) -> dict[str, Any]:
    """Builds the node group of one role."""
    return {"targetNodes": f"{first}:{first + count - 1}", "container": container}


def _container(role: Role, app_id: str, place: Place, opts: Opts) -> dict[str, Any]:
    if opts.platform == "fargate":
        _check_fargate(role, opts)
    properties = container_properties(
        role,
        app_id,
        place,
        privileged=opts.privileged,
        job_role_arn=opts.job_role_arn,
        execution_role_arn=opts.execution_role_arn,
        ulimits=opts.ulimits,
    )
    if opts.log_group:
        properties["logConfiguration"]["options"] = {"awslogs-group": opts.log_group}
    if secrets := parse_secrets(opts.secrets or []):
        properties["secrets"] = secrets
    if opts.platform == "fargate":
        for name in ("privileged", "linuxParameters"):
            del properties[name]
        properties["resourceRequirements"] = fargate_requirements(role.resource)
        public = "ENABLED" if opts.assign_public_ip else "DISABLED"
        properties["networkConfiguration"] = {"assignPublicIp": public}
    return properties


def container_properties(
    role: Role,
    app_id: str,
    place: Place,
    *,
    privileged: bool = False,
    job_role_arn: str | None = None,
    execution_role_arn: str | None = None,
    ulimits: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Builds the containers of a role on EC2."""
    mounts = build_mounts(role, [*role.mounts, *get_device_mounts(role.resource.devices)])
    requirements = resource_requirements_from_resource(role.resource)
    properties: dict[str, Any] = {
        **build_command(role, app_id, place),
        "image": role.image,
        "privileged": privileged,
        "resourceRequirements": requirements,
        "linuxParameters": {
            "sharedMemorySize": role.resource.memMB,
            "devices": mounts["devices"],
        },
        "logConfiguration": {"logDriver": "awslogs"},
        "mountPoints": mounts["mountPoints"],
        "volumes": mounts["volumes"],
    }
    limits = parse_ulimits([*(ulimits or ())])
    optional = {
        "ulimits": limits,
        "jobRoleArn": job_role_arn,
        "executionRoleArn": execution_role_arn,
    }
    return {**properties, **{name: value for name, value in optional.items() if value}}


def _check_fargate(role: Role, opts: Opts) -> None:
    """Refuses features that containers on Fargate do not have."""
    if not opts.execution_role_arn:
        msg = "`platform=fargate` needs the option `execution_role_arn`, which pulls the image"
        raise InvalidInput(msg)
    wrong = {
        "`privileged`": opts.privileged,
        "`ulimits`": bool(opts.ulimits),
        "devices": bool(role.resource.devices),
        "mounts of the host": any(not isinstance(mount, VolumeMount) for mount in role.mounts),
    }
    named = [what for what, given in wrong.items() if given]
    if named:
        msg = f"role `{role.name}`: fargate has no {', '.join(named)}: use `platform=ec2`"
        raise UnsupportedRequest(msg)
