"""Builds the native request: one ``CreateTrainingJob``. Pure."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from torchx._startup.dataclass import field, light_dataclass
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.settings import ENV_TORCHX_RANK0_HOST, ENV_TORCHX_ROLE_NAME
from torchx.specs.api import AppDef, CfgVal, Role, macros
from torchx.version import __version__

from ._args import MODULE_LAUNCHER, build_hyperparameters, module_of, parse_args
from ._command import REPLICA_MARK, build_command, cut_script
from ._instances import choose_instance_type
from ._names import TAG_APP, TAG_JOB, TAG_MARK, TAG_ROLE, TAG_USER, build_tags
from ._options import Opts, check_options
from ._placeholders import ACCOUNT, CODE_CHANNEL, DEFAULT_OUTPUT, DIGEST, REGION

FIRST_HOST = "algo-1"
_ENV_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_ENV_CHARS = 512
_MOST_ENV = 100
_MAX_RUN_S = 86_400
_VOLUME_GB = 30
_LOG_LEVEL = 20
_OF_US = frozenset({ENV_TORCHX_RANK0_HOST, ENV_TORCHX_ROLE_NAME})


@light_dataclass(frozen=True)
class Source:
    """The code that goes along with a script.

    Args:
        projects: directories by their paths in the archive, like in a workspace.
        location: where the archive is stored, by its digest.
        script: path of the script that the job runs; ``None`` for a module.
        module: the module that it runs; ``None`` for a script.
    """

    projects: Mapping[str, str]
    location: str
    script: str | None = None
    module: str | None = None


@light_dataclass
class AWSSageMakerJob:
    """The native request of ``aws_sagemaker``. Its text is YAML.

    Args:
        job_def: the request ``CreateTrainingJob``.
        source: ``None`` if no code is sent along.
    """

    job_name: str
    job_def: dict[str, Any]
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    source: Source | None = None
    region: str | None = None
    profile: str | None = None

    def __str__(self) -> str:
        import yaml  # takes longer to import than everything else here

        shown: dict[str, Any] = {"CreateTrainingJob": self.job_def}
        script = cut_script(self.job_def["AlgorithmSpecification"])
        if script:
            shown["command"] = script
        if self.source is not None:
            shown["source"] = {place or ".": path for path, place in self.source.projects.items()}
        return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100)

    __repr__ = __str__


def build_request(
    app: AppDef, name: str, opts: Opts, projects: Mapping[str, str]
) -> AWSSageMakerJob:
    """Builds the request of an app of one role, which is not changed.

    Args:
        name: name of the job; see ``_names.job_name``.
        projects: the source if the options name none: directories by their paths in it.

    Raises:
        InvalidInput: for values that SageMaker does not accept.
        UnsupportedRequest: for features that it does not have.
    """
    check_options(opts)
    (role,) = app.roles
    _check_role(role)
    job_def: dict[str, Any] = {"TrainingJobName": name}
    job_def["AlgorithmSpecification"] = algorithm = _algorithm(role, opts)
    job_def["RoleArn"] = _role_arn(opts.role)
    output = opts.output_path or DEFAULT_OUTPUT
    channels = _model_channel(opts)
    env = _environment(role, name, opts)
    source = None
    if opts.launch == "container":
        _add_command(algorithm, role, name, env)
        if opts.hyperparameters:
            job_def["HyperParameters"] = _plain_hyperparameters(opts.hyperparameters)
    else:
        source, job_def["HyperParameters"] = _script(role, name, opts, output, projects)
        if opts.enable_network_isolation:
            channels.append(_channel(CODE_CHANNEL, _source_uri(source), None))
    if channels:
        job_def["InputDataConfig"] = channels
    job_def["OutputDataConfig"] = _set(
        S3OutputPath=output,
        KmsKeyId=opts.output_kms_key,
        CompressionType="NONE" if opts.disable_output_compression else None,
    )
    job_def["ResourceConfig"] = _resources(role, opts)
    job_def["StoppingCondition"] = _limits(opts)
    job_def["Environment"] = _checked_environment(role.name, env)
    job_def["Tags"] = _tags(app, role, name, opts)
    job_def |= _more(opts, output)
    return AWSSageMakerJob(name, job_def, {}, source, opts.region, opts.profile)


def _check_role(role: Role) -> None:
    if role.max_retries:
        msg = (
            f"role `{role.name}` has max_retries={role.max_retries}, and a training job is not"
            " started again when its program fails: leave it out; the option"
            " `max_retry_attempts` is for internal errors of SageMaker"
        )
        raise UnsupportedRequest(msg)
    if not role.image:
        msg = f"role `{role.name}` has no image: give the name of a container image in a registry"
        raise InvalidInput(msg)
    for text in (role.entrypoint, *role.args, *role.env.values()):
        try:
            str(text).encode()
        except UnicodeEncodeError:
            msg = f"role `{role.name}` has bytes that are not UTF-8 in {text!r:.80}, and AWS takes"
            raise InvalidInput(f"{msg} none") from None


def _set(**members: Any) -> dict[str, Any]:
    """Returns the given members."""
    return {name: value for name, value in members.items() if value is not None}


def _algorithm(role: Role, opts: Opts) -> dict[str, Any]:
    metrics = as_mapping(opts.metric_definitions, "Name", "Regex")
    access = opts.training_repository_access_mode
    provider = opts.training_repository_credentials_provider_arn
    return _set(
        TrainingImage=role.image,
        TrainingInputMode=opts.input_mode or "File",
        MetricDefinitions=[{"Name": k, "Regex": v} for k, v in metrics.items()] or None,
        EnableSageMakerMetricsTimeSeries=opts.enable_sagemaker_metrics,
        TrainingImageConfig=_set(
            TrainingRepositoryAccessMode=access,
            TrainingRepositoryAuthConfig=(
                {"TrainingRepositoryCredentialsProviderArn": provider} if provider else None
            ),
        )
        or None,
    )


def as_mapping(value: CfgVal, key: str, content: str) -> dict[str, str]:
    """Converts an option that the first generation has as a list of ``{key: ..., content: ...}``.

    >>> as_mapping([{"Key": "team", "Value": "a"}], "Key", "Value")
    {'team': 'a'}
    """
    if not value:
        return {}
    if isinstance(value, Mapping):
        return {str(name): str(held) for name, held in value.items()}
    items: Any = value  # a list of mappings, which no current option is
    try:
        return {str(item[key]): str(item[content]) for item in items}
    except (TypeError, KeyError):
        msg = f"expected name:value pairs, or a list of `{key}` and `{content}`, given: {value!r}"
        raise InvalidInput(msg) from None


def _role_arn(role: str) -> str:
    if role.startswith("arn:"):
        return role
    if not re.fullmatch(r"[\w+=,.@/-]+", role):
        msg = f"option `role` is the name or the ARN of an IAM role, given: `{role}`"
        raise InvalidInput(msg)
    return f"arn:aws:iam::{ACCOUNT}:role/{role}"


def _model_channel(opts: Opts) -> list[dict[str, Any]]:
    if not opts.model_uri:
        return []
    name = opts.model_channel_name or "model"
    return [_channel(name, opts.model_uri, "application/x-sagemaker-model")]


def _channel(name: str, uri: str, content_type: str | None) -> dict[str, Any]:
    return _set(
        ChannelName=name,
        DataSource={
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": uri,
                "S3DataDistributionType": "FullyReplicated",
            }
        },
        ContentType=content_type,
        InputMode="File",
    )


# -- the program ---------------------------------------------------------------------------------


def _values(name: str) -> macros.Values:
    return macros.Values("", name, REPLICA_MARK, ENV_TORCHX_RANK0_HOST)


def _add_command(algorithm: dict[str, Any], role: Role, name: str, env: dict[str, str]) -> None:
    """Adds the command; variables that depend on the instance move from ``env`` into it."""
    values = _values(name)
    late = {key: value for key, value in env.items() if REPLICA_MARK in value}
    for key in late:
        del env[key]
        _check_env_name(role.name, key)
    words = [role.entrypoint, *(values.substitute(arg) for arg in role.args)]
    command = build_command(role.name, words, late)
    algorithm["ContainerEntrypoint"] = command.entrypoint
    if command.arguments:
        algorithm["ContainerArguments"] = command.arguments


def _plain_hyperparameters(given: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(value) for key, value in given.items()}


def _script(
    role: Role, name: str, opts: Opts, output: str, default: Mapping[str, str]
) -> tuple[Source, dict[str, str]]:
    """Returns the source, and the hyperparameters for the toolkit in the image."""
    values = _values(name)
    entry, named = parse_args([values.substitute(arg) for arg in role.args])
    if any(REPLICA_MARK in text for text in (entry, *named.values())):
        msg = (
            f"role `{role.name}` uses `{macros.replica_id}`, and the arguments of a script are the"
            " same on all instances: leave it out, or give launch=container"
        )
        raise InvalidInput(msg)
    module = module_of(entry)
    projects = {opts.source_dir: ""} if opts.source_dir else {**default}
    for extra in opts.dependencies or ():
        projects[extra] = posixpath.basename(posixpath.normpath(extra))
    location = opts.code_location or _below(output, "torchx-source")
    source = Source(projects, location, None if module else entry, module)
    uri = _source_uri(source)
    if opts.enable_network_isolation:
        uri = f"/opt/ml/input/data/{CODE_CHANNEL}/{DIGEST}.tar.gz"
    level = opts.container_log_level
    toolkit = {
        "sagemaker_program": MODULE_LAUNCHER if module else entry,
        "sagemaker_submit_directory": uri,
        "sagemaker_container_log_level": _LOG_LEVEL if level is None else level,
        "sagemaker_job_name": name,
        "sagemaker_region": opts.region or REGION,
        "sagemaker_torch_distributed_enabled": True,
    }
    given = _plain_hyperparameters(opts.hyperparameters or {})
    return source, build_hyperparameters({**given, **named}, toolkit)


def _below(uri: str, name: str) -> str:
    return f"{uri.rstrip('/')}/{name}"


def _source_uri(source: Source) -> str:
    return _below(source.location, f"{DIGEST}.tar.gz")


# -- environment ---------------------------------------------------------------------------------


def _environment(role: Role, name: str, opts: Opts) -> dict[str, str]:
    values = _values(name)
    env = {str(key): str(value) for key, value in (opts.environment or {}).items()}
    env |= {key: values.substitute(value) for key, value in role.env.items()}
    # the first host has this name on all instances
    return {ENV_TORCHX_RANK0_HOST: FIRST_HOST, ENV_TORCHX_ROLE_NAME: role.name, **env}


def _checked_environment(role: str, env: dict[str, str]) -> dict[str, str]:
    for key, value in env.items():
        _check_env_name(role, key)
        if REPLICA_MARK in value:
            msg = (
                f"role `{role}`: the environment of a script is the same on all instances, and"
                f" `{key}` has `{macros.replica_id}`: leave it out, or give launch=container"
            )
            raise InvalidInput(msg)
        if len(value) > _ENV_CHARS:
            msg = (
                f"role `{role}`: the value of the environment variable `{key}` has {len(value):,}"
                f" characters, and SageMaker takes at most {_ENV_CHARS}: shorten it, or put it"
                " into a file of the image"
            )
            raise InvalidInput(msg)
    if len(env) > _MOST_ENV:
        msg = (
            f"role `{role}` has {len(env)} environment variables with the {len(_OF_US)} of TorchX,"
            f" and SageMaker takes at most {_MOST_ENV}: leave some out"
        )
        raise InvalidInput(msg)
    return env


def _check_env_name(role: str, key: str) -> None:
    if not _ENV_NAME.fullmatch(key) or len(key) > _ENV_CHARS:
        msg = (
            f"role `{role}`: SageMaker takes names of environment variables of letters, digits and"
            f" `_`, a digit not first, given: `{key:.80}`"
        )
        raise InvalidInput(msg)


# -- the rest ------------------------------------------------------------------------------------


def _resources(role: Role, opts: Opts) -> dict[str, Any]:
    return _set(
        InstanceType=choose_instance_type(role, opts.instance_type),
        InstanceCount=opts.instance_count or role.num_replicas,
        VolumeSizeInGB=opts.volume_size or _VOLUME_GB,
        VolumeKmsKeyId=opts.volume_kms_key,
        KeepAlivePeriodInSeconds=opts.keep_alive_period_in_seconds,
    )


def _limits(opts: Opts) -> dict[str, int]:
    """Builds the limits of run time and, on spot, of wait time, which includes run time."""
    if not opts.use_spot_instances:
        return {"MaxRuntimeInSeconds": opts.max_run or _MAX_RUN_S}
    run = opts.max_run or min(_MAX_RUN_S, opts.max_wait or _MAX_RUN_S)
    return {"MaxRuntimeInSeconds": run, "MaxWaitTimeInSeconds": opts.max_wait or 2 * run}


def _tags(app: AppDef, role: Role, name: str, opts: Opts) -> list[dict[str, str]]:
    own = {TAG_MARK: __version__, TAG_APP: app.name, TAG_ROLE: role.name, TAG_JOB: name}
    if opts.user:
        own[TAG_USER] = opts.user
    return build_tags(own, as_mapping(opts.tags, "Key", "Value"), app.metadata)


def _more(opts: Opts, output: str) -> dict[str, Any]:
    """Builds the optional blocks of the request."""
    vpc = {"SecurityGroupIds": opts.security_group_ids, "Subnets": opts.subnets}
    retries, infra = opts.max_retry_attempts, opts.enable_infra_check
    checkpoint = _set(S3Uri=opts.checkpoint_s3_uri, LocalPath=opts.checkpoint_local_path)
    return _set(
        VpcConfig=vpc if opts.subnets else None,
        EnableNetworkIsolation=opts.enable_network_isolation,
        EnableInterContainerTrafficEncryption=opts.encrypt_inter_container_traffic,
        EnableManagedSpotTraining=opts.use_spot_instances,
        CheckpointConfig=checkpoint or None,
        DebugHookConfig={"S3OutputPath": output} if opts.debugger_hook_config else None,
        ProfilerConfig=_set(DisableProfiler=opts.disable_profiler) or None,
        RetryStrategy={"MaximumRetryAttempts": retries} if retries else None,
        InfraCheckConfig=None if infra is None else {"EnableInfraCheck": infra},
    )
