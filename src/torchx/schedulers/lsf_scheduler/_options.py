"""Options of ``lsf``, and checks of their values for ``bsub``."""

import re
import shlex
from collections.abc import Mapping

from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers.api import StructuredOpts
from torchx.specs.api import CfgVal

RUNTIMES = ("docker", "apptainer", "none")


@light_dataclass
class LsfOpts(StructuredOpts):
    queue: str | None = None
    """Queue; several are given as a b. Default: that of the cluster."""

    lsf_queue: str | None = None
    """Former name of `queue`."""

    jobdir: str | None = None
    """Shared directory for scripts, logs, notes and a copy of the workspace; created if missing.
    Default: `lsf` in TorchX's own directory in your home.
    """

    link_unchanged: bool = False
    """Hard-link files in jobdir that did not change since an earlier copy of the workspace; for
    jobs that write into no file of it."""

    runtime: str | None = None
    """How replicas run: docker, apptainer, or none (on the host itself). Default: none for a role
    whose image is empty or a directory, else docker."""

    gang: bool = False
    """Run the whole app as one parallel job: all replicas at once, or none."""

    container_workdir: str | None = None
    """Working directory in the containers."""

    host_network: bool = False
    """Let containers use the network and the IPC of the host."""

    shm_size: str = "64m"
    """Size of /dev/shm in the containers of docker."""

    project: str | None = None
    """Project that is charged for the jobs."""

    walltime: str | None = None
    """Run time limit: minutes or hours:minutes."""

    app_profile: str | None = None
    """Application profile of the cluster."""

    resource_req: str | None = None
    """Further resource requirements: select[...] rusage[...] and others that bsub knows."""

    sla: str | None = None
    """Service class that the jobs belong to."""

    reservation: str | None = None
    """Advance reservation whose slots are used."""

    hosts: str | None = None
    """Hosts or host groups to run on: h1 h2."""

    exclusive: bool = False
    """Share the hosts with no other job."""

    dependency: str | None = None
    """What to wait for: done(123) && ended("name") and other forms that bsub knows."""

    begin: str | None = None
    """Earliest start: [[[year:]month:]day:]hour:minute."""

    notify: str | None = None
    """When LSF mails you about each job: begin, end or begin,end."""

    bsub_args: str | None = None
    """Further arguments of bsub, quoted as in a shell; they come last."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed: end (they are ended at once) or wait
    (they go on)."""


_TEXTS = [
    "queue",
    "lsf_queue",
    "jobdir",
    "container_workdir",
    "shm_size",
    "project",
    "app_profile",
    "resource_req",
    "sla",
    "reservation",
    "hosts",
    "dependency",
]
_WALLTIME = re.compile(r"\d{1,7}(?::[0-5]?\d)?(?:/[\w.-]+)?")
_BEGIN = re.compile(r"(?:(?:(?:\d{4}:)?\d{1,2}:)?\d{1,2}:)?[0-2]?\d:[0-5]\d")
_OURS = frozenset(
    [
        "-J",
        "-Jd",
        "-cwd",
        "-outdir",
        "-o",
        "-oo",
        "-e",
        "-eo",
        "-i",
        "-is",
        "-Q",
        "-K",
        "-I",
        "-Ip",
        "-Is",
        "-IX",
        "-ISp",
        "-Zs",
    ]
)
"""Arguments that would keep jobs from being found again."""


def check_options(cfg: Mapping[str, CfgVal]) -> None:
    """Raises ``InvalidInput`` for a value that bsub could not read as one value.

    Names that only the cluster knows, such as queues and projects, are not checked.
    """
    for name in _TEXTS:
        _check_text(name, cfg.get(name))
    _check_form(
        "walltime", cfg.get("walltime"), _WALLTIME, "minutes or hours:minutes, as 90 or 1:30"
    )
    _check_form("begin", cfg.get("begin"), _BEGIN, "[[[year:]month:]day:]hour:minute, as 20:00")
    runtime = cfg.get("runtime")
    if runtime is not None and runtime not in RUNTIMES:
        msg = f"option `runtime` is one of {', '.join(RUNTIMES)}, given: `{runtime}`"
        raise InvalidInput(msg)
    queue, old = cfg.get("queue"), cfg.get("lsf_queue")
    if queue is not None and old is not None and queue != old:
        msg = f"`queue` and `lsf_queue` mean the same, given: `{queue}` and `{old}`; leave one out"
        raise InvalidInput(msg)
    ends_on_failure(cfg.get("on_failure"))
    notify_flags(cfg.get("notify"))
    split_bsub_args(cfg.get("bsub_args"))


def notify_flags(value: CfgVal) -> list[str]:
    """Returns the arguments of bsub for the option ``notify``.

    >>> notify_flags("begin,end")
    ['-B', '-N']
    """
    if value is None:
        return []
    flags = {"begin": "-B", "end": "-N"}
    words = str(value).split(",")
    if any(word not in flags for word in words):
        msg = f"option `notify` is `begin`, `end` or `begin,end`, given: `{value}`"
        raise InvalidInput(msg)
    return [flags[word] for word in dict.fromkeys(words)]


def split_bsub_args(value: CfgVal) -> list[str]:
    """Splits the option ``bsub_args`` into words.

    >>> split_bsub_args("-sp 10 -u 'a b'")
    ['-sp', '10', '-u', 'a b']
    """
    if value is None:
        return []
    _check_text("bsub_args", value, may_begin_with_dash=True)
    try:
        words = shlex.split(str(value))
    except ValueError as err:
        msg = f"option `bsub_args` has an open quote ({err}), given: {value!r}"
        raise InvalidInput(msg) from None
    ours = [word for word in words if word in _OURS]
    if ours:
        msg = f"option `bsub_args` must not hold `{ours[0]}`, which TorchX sets itself"
        raise InvalidInput(msg)
    return words


def _check_form(name: str, value: CfgVal, form: "re.Pattern[str]", words: str) -> None:
    if value is not None and not form.fullmatch(str(value)):
        msg = f"option `{name}` must be {words}, given: `{value}`"
        raise InvalidInput(msg)


def _check_text(name: str, value: CfgVal, may_begin_with_dash: bool = False) -> None:
    if value is None:
        return
    text = str(value)
    if not text.strip() or any(not char.isprintable() for char in text):
        msg = f"option `{name}` must be one line of printable characters, given: {text!r}"
        raise InvalidInput(msg)
    if text.startswith("-") and not may_begin_with_dash:
        msg = f"option `{name}` must not begin with `-`, which bsub reads as an option: `{text}`"
        raise InvalidInput(msg)
