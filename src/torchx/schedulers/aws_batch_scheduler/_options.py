"""Options of ``aws_batch``, and the values that the service accepts."""

from dataclasses import dataclass

from torchx.errors import InvalidInput
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers.api import StructuredOpts

PLATFORMS = ("ec2", "fargate")
LEAST_TIMEOUT_S = 60
MOST_PRIORITY = 9999


@dataclass
class Opts(StructuredOpts):
    queue: str
    """Job queue: its name or its ARN."""

    user: str | None = None
    """Value of the tag torchx.pytorch.org/user; unset, your user on this machine."""

    privileged: bool = False
    """Give the containers all rights on their host."""

    share_id: str | None = None
    """Fair-share identifier; needed exactly where the queue has a scheduling policy."""

    priority: int = 0
    """Scheduling priority within the share, 0 to 9999; only with share_id."""

    job_role_arn: str | None = None
    """ARN of the IAM role that the replicas act as."""

    execution_role_arn: str | None = None
    """ARN of the IAM role that pulls the image, reads secrets and writes logs; fargate needs it."""

    ulimits: list[str] | None = None
    """Limits of the containers as name:soft:hard, -1 for none. Example: memlock:-1:-1"""

    timeout_s: int | None = None
    """Seconds after which an attempt is ended and has failed, 60 at least; unset, never."""

    log_group: str | None = None
    """CloudWatch log group of the replicas' output, which must exist; unset, /aws/batch/job."""

    region: str | None = None
    """AWS region; unset, that of the environment or of the profile."""

    profile: str | None = None
    """Profile of ~/.aws/config; unset, AWS_PROFILE or the default one."""

    platform: str = "ec2"
    """Where containers run: ec2, or fargate for an app of one replica."""

    assign_public_ip: bool = False
    """Give a container on fargate a public address, by which it reaches registries and logs from a
    public subnet."""

    spot: bool = False
    """Start an app of one replica again, up to 10 times, when its spot instance is taken away;
    excludes max_retries. The queue decides whether instances are spot."""

    secrets: list[str] | None = None
    """Environment variables from Secrets Manager or the Parameter Store, as NAME=ARN. Example:
    TOKEN=arn:aws:secretsmanager:eu-west-1:123456789012:secret:token"""

    tags: dict[str, str] | None = None
    """More tags of the job and its definition. Example: team:vision,cost:42"""

    propagate_tags: bool = False
    """Copy the tags to the tasks of ECS, where cost reports find them."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed for good: `end` ends them, as long as
    `torchx run` or `Runner.wait` waits for the app; `wait` lets them go on. All end with replica 0
    of the first role."""


def check_options(opts: Opts) -> None:
    """Refuses values that the service does not accept.

    Raises:
        InvalidInput: with the option, its value and the allowed ones.
    """
    if not opts.queue or opts.queue != opts.queue.strip():
        msg = f"option `queue` must be the name or the ARN of a job queue, given: {opts.queue!r}"
        raise InvalidInput(msg)
    if opts.platform not in PLATFORMS:
        msg = f"option `platform` is one of {', '.join(PLATFORMS)}, given: `{opts.platform}`"
        raise InvalidInput(msg)
    if not 0 <= opts.priority <= MOST_PRIORITY:
        msg = f"option `priority` is a number from 0 to {MOST_PRIORITY}, given: {opts.priority}"
        raise InvalidInput(msg)
    if opts.timeout_s is not None and opts.timeout_s < LEAST_TIMEOUT_S:
        msg = f"option `timeout_s` is {LEAST_TIMEOUT_S} seconds at least, given: {opts.timeout_s}"
        raise InvalidInput(msg)
    for name in ("job_role_arn", "execution_role_arn"):
        value = getattr(opts, name)
        if value is not None and not value.startswith("arn:"):
            msg = f"option `{name}` must be an ARN, arn:aws:iam::<account>:role/<name>: `{value}`"
            raise InvalidInput(msg)
    if opts.platform != "fargate" and opts.assign_public_ip:
        msg = "option `assign_public_ip` needs `platform=fargate`; on ec2 the subnet decides"
        raise InvalidInput(msg)
    parse_ulimits(opts.ulimits or [])
    parse_secrets(opts.secrets or [])
    ends_on_failure(opts.on_failure)


def parse_ulimits(texts: list[str]) -> list[dict[str, object]]:
    """Parses limits of a container from ``name:soft:hard``; skips blank entries.

    >>> parse_ulimits(["nofile:1024:-1", " "])
    [{'name': 'nofile', 'softLimit': 1024, 'hardLimit': -1}]

    Raises:
        InvalidInput: for another form.
    """
    found: list[dict[str, object]] = []
    for text in texts:
        if not text.strip():
            continue
        name, *limits = (part.strip() for part in text.split(":"))
        if not name or len(limits) != 2 or not all(_is_limit(limit) for limit in limits):
            msg = (
                f"a ulimit must be name:soft:hard with whole numbers, -1 for no limit: `{text}`; "
                "example: nofile:1024:4096"
            )
            raise InvalidInput(msg)
        found.append({"name": name, "softLimit": int(limits[0]), "hardLimit": int(limits[1])})
    return found


def _is_limit(text: str) -> bool:
    return text == "-1" or (text.isascii() and text.isdigit())


def parse_secrets(texts: list[str]) -> list[dict[str, str]]:
    """Parses secrets of a container from ``NAME=ARN``.

    >>> parse_secrets(["TOKEN=arn:aws:ssm:eu-west-1:1:parameter/t"])
    [{'name': 'TOKEN', 'valueFrom': 'arn:aws:ssm:eu-west-1:1:parameter/t'}]

    Raises:
        InvalidInput: for another form.
    """
    found = []
    for text in texts:
        name, equals, source = text.strip().partition("=")
        if not name or not equals or not source:
            msg = (
                "option `secrets` takes NAME=ARN of a secret or parameter, or NAME=parameter of "
                f"the same region; given: `{name}`"
            )
            raise InvalidInput(msg)
        found.append({"name": name, "valueFrom": source})
    return found
