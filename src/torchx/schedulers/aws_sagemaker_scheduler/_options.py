"""Options of ``aws_sagemaker``: those of both published generations, and their checks."""

from collections.abc import Mapping

from torchx._startup.dataclass import light_dataclass
from torchx._words import did_you_mean
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.api import StructuredOpts
from torchx.specs.api import CfgVal

LAUNCHES = ("script", "container")


@light_dataclass
class Opts(StructuredOpts):
    role: str
    """IAM role of the job: its ARN, or its name, which is looked up when the job is submitted."""

    instance_type: str | None = None
    """Type of the instances, such as ml.p4d.24xlarge. Default: what the role's resource names, or
    the smallest known type that holds it."""

    instance_count: int | None = None
    """Number of instances. Default: the number of replicas."""

    launch: str = "script"
    """How the role runs: `script` (its args are a Python script and --name=value arguments, which
    the image's SageMaker toolkit starts with torchrun) or `container` (its entrypoint and args as
    they are, in any image)."""

    source_dir: str | None = None
    """Directory that is sent along with launch=script. Default: the workspace, unless it is built
    into the image (`image_repo`); else the current directory.
    """

    dependencies: list[str] | None = None
    """Further directories that are sent along with the source, each under its own name."""

    code_location: str | None = None
    """Where the source is stored: s3://bucket/prefix. Default: below the output path."""

    hyperparameters: dict[str, str] | None = None
    """Further hyperparameters; those of the role's args win."""

    environment: dict[str, str] | None = None
    """Further environment variables; those of the role win."""

    output_path: str | None = None
    """Where the results go: s3://bucket/prefix. Default: the account's own bucket of SageMaker,
    sagemaker-REGION-ACCOUNT, which is created if it is missing."""

    output_kms_key: str | None = None
    """KMS key of the results."""

    disable_output_compression: bool | None = None
    """Store the results as files, not as one archive."""

    volume_size: int | None = None
    """Size of each instance's volume, in GB; 30 if it is not given."""

    volume_kms_key: str | None = None
    """KMS key of the volumes."""

    keep_alive_period_in_seconds: int | None = None
    """Seconds to keep the instances, and pay for them, after the job: a warm pool for the next.
    """

    max_run: int | None = None
    """Seconds after which the job is ended; one day if it is not given."""

    use_spot_instances: bool | None = None
    """Run on spot instances. Give `max_wait`, and checkpoints for a job that goes on after an
    interruption."""

    max_wait: int | None = None
    """Seconds that a job on spot instances may take with all its waiting, at least `max_run`.
    Default: twice that."""

    max_retry_attempts: int | None = None
    """Number of retries after an internal error of the service, 1 to 30."""

    checkpoint_s3_uri: str | None = None
    """Where checkpoints are stored: s3://bucket/prefix."""

    checkpoint_local_path: str | None = None
    """Directory of the checkpoints in the container; /opt/ml/checkpoints if it is not given."""

    subnets: list[str] | None = None
    """Subnets of the VPC to run in; needs `security_group_ids`."""

    security_group_ids: list[str] | None = None
    """Security groups in the VPC; needs `subnets`."""

    enable_network_isolation: bool | None = None
    """Run the containers without network access."""

    encrypt_inter_container_traffic: bool | None = None
    """Encrypt the traffic between instances."""

    training_repository_access_mode: str | None = None
    """Where the image's registry is: Platform (ECR) or Vpc (a private one)."""

    training_repository_credentials_provider_arn: str | None = None
    """Lambda function that gives the credentials of the private registry."""

    metric_definitions: dict[str, str] | None = None
    """Metrics read from the log: name to regular expression."""

    enable_sagemaker_metrics: bool | None = None
    """Keep these metrics as time series."""

    input_mode: str | None = None
    """How channels of input reach the container: File, Pipe or FastFile."""

    model_uri: str | None = None
    """A pre-trained model in S3, as a channel of input."""

    model_channel_name: str | None = None
    """Name of that channel; `model` if it is not given."""

    tags: dict[str, str] | None = None
    """Tags of the job."""

    user: str | None = None
    """Owner of the job, as a tag."""

    base_job_name: str | None = None
    """Prefix of the job's name, in place of the app's name."""

    enable_infra_check: bool | None = None
    """Let the service check the instances before the job starts."""

    debugger_hook_config: bool | None = None
    """Let SageMaker's debugger save tensors below the output path."""

    disable_profiler: bool | None = None
    """Leave out SageMaker's profiler."""

    container_log_level: int | None = None
    """Log level of the toolkit in the image, such as 20 for info."""

    git_config: dict[str, str] | None = None
    """Not supported any more: give `source_dir` a checkout."""

    region: str | None = None
    """Region of AWS. Default: that of the profile or the environment."""

    profile: str | None = None
    """Profile of the AWS configuration whose credentials are used."""


_RANGES = {
    "instance_count": (1, None),
    "keep_alive_period_in_seconds": (0, 21_600),
    "volume_size": (1, None),
    "max_run": (1, None),
    "max_wait": (1, None),
    "max_retry_attempts": (1, 30),
}
_CHOICES = {
    "launch": LAUNCHES,
    "input_mode": ("File", "Pipe", "FastFile"),
    "training_repository_access_mode": ("Platform", "Vpc"),
}
_S3 = ("output_path", "checkpoint_s3_uri", "code_location", "model_uri")
_WITH_SCRIPT = ("source_dir", "dependencies", "code_location", "container_log_level")
_NEEDS = {
    "subnets": "security_group_ids",
    "security_group_ids": "subnets",
    "max_wait": "use_spot_instances",
    "checkpoint_local_path": "checkpoint_s3_uri",
    "training_repository_credentials_provider_arn": "training_repository_access_mode",
    "model_channel_name": "model_uri",
}


def check_options(cfg: Mapping[str, CfgVal]) -> None:
    """Refuses values that SageMaker would refuse, and options that need another one.

    Raises:
        InvalidInput: for such values.
        UnsupportedRequest: for an option that has gone.
    """
    if cfg.get("git_config"):
        msg = "`git_config` is not supported: check the code out, and set `source_dir` to its path"
        raise UnsupportedRequest(msg)
    for name, choices in _CHOICES.items():
        _check_choice(name, cfg.get(name), choices)
    for name, (least, most) in _RANGES.items():
        _check_range(name, cfg.get(name), least, most)
    _check_places(cfg)
    for name, needed in _NEEDS.items():
        if cfg.get(name) and not cfg.get(needed):
            raise InvalidInput(f"option `{name}` has no effect without `{needed}`: give both")
    _check_launch(cfg)
    _check_wait(cfg)


def _check_places(cfg: Mapping[str, CfgVal]) -> None:
    for name in _S3:
        value = cfg.get(name)
        if value is not None and not str(value).startswith("s3://"):
            msg = f"option `{name}` must be a place in S3 like s3://bucket/prefix, given: `{value}`"
            raise InvalidInput(msg)


def _check_launch(cfg: Mapping[str, CfgVal]) -> None:
    if cfg.get("launch") != "container":
        return
    for name in _WITH_SCRIPT:
        if cfg.get(name) is not None:
            msg = f"option `{name}` is for launch=script, and launch=container is given"
            raise InvalidInput(msg)


def _check_choice(name: str, value: CfgVal, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        hint = did_you_mean(str(value), choices)
        msg = f"option `{name}` is one of {', '.join(choices)}, given: `{value}`.{hint}"
        raise InvalidInput(msg)


def _check_range(name: str, value: CfgVal, least: int, most: int | None) -> None:
    if not isinstance(value, int):
        return
    if value < least or (most is not None and value > most):
        allowed = f"{least} to {most}" if most is not None else f"at least {least}"
        raise InvalidInput(f"option `{name}` must be {allowed}, given: {value}")


def _check_wait(cfg: Mapping[str, CfgVal]) -> None:
    wait, run = cfg.get("max_wait"), cfg.get("max_run")
    if isinstance(wait, int) and isinstance(run, int) and wait < run:
        msg = f"option `max_wait` includes `max_run`: it must be at least {run}, given: {wait}"
        raise InvalidInput(msg)
