"""Options of ``slurm``, and checks of their values for ``#SBATCH`` lines."""

import re
import shlex
from collections.abc import Mapping, Sequence

from torchx._startup.dataclass import field, light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.schedulers._core.checks import ends_on_failure
from torchx.schedulers.api import StructuredOpts
from torchx.specs.api import CfgVal

logger = get_logger(__name__)


@light_dataclass
class SlurmOpts(StructuredOpts):
    account: str | None = None
    """Account that is charged for the job."""

    partition: str | None = None
    """Partition to run in; several are given as a,b. Default: that of the cluster."""

    time: str | None = None
    """Time limit: minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s."""

    comment: str | None = None
    """Comment of the job."""

    constraint: str | None = None
    """Features that the nodes must have."""

    mail_user: str | None = field(default=None, metadata={"cfg_key": "mail-user"})
    """Whom to mail about the job."""

    mail_type: str | None = field(default=None, metadata={"cfg_key": "mail-type"})
    """What to mail about: BEGIN,END,FAIL, ALL and others that sbatch knows."""

    job_dir: str | None = None
    """Shared directory for the script, the logs and a copy of the workspace. Default: the
    working directory."""

    link_unchanged: bool = False
    """Hard-link files in job_dir that did not change since an earlier copy of the workspace; for
    jobs that write into no file of it."""

    qos: str | None = None
    """Quality of Service of the job."""

    reservation: str | None = None
    """Reservation whose nodes are used."""

    exclusive: bool = False
    """Share the nodes with no other job."""

    nodelist: str | None = None
    """Nodes that must be among those of each role: n1,n[3-5]."""

    exclude: str | None = None
    """Nodes that are not used: n1,n[3-5]."""

    dependency: str | None = None
    """Jobs to wait for: afterok:123 and other forms that sbatch knows."""

    begin: str | None = None
    """Earliest start: now+1hour, 16:00 or 2030-01-20T12:34:00."""

    signal: str | None = None
    """Signal to the replicas before the time limit or a preemption: USR1@120 (seconds). A signal
    for the batch script alone (B:USR1@120) goes to the replicas as well.
    """

    container_image: str | None = None
    """Container image of every role, for clusters with the pyxis plugin."""

    container_mounts: str | None = None
    """Mounts in the containers: /src:/dst[:flags],..."""

    on_failure: str = "end"
    """What happens to the other replicas when one has failed: end (they are ended at once) or wait
    (they go on)."""

    sbatch_args: str | None = None
    """Further arguments of sbatch for each role, as `--name=value --flag`; they win over others."""

    role_args: str | None = None
    """Further arguments of sbatch for single roles, which win over all others, as
    `role: --name=value --flag; other: ...`."""

    srun_args: str | None = None
    """Further arguments of srun for each role, as `--name=value --flag`; they win over others."""


_WORDS = [
    "account",
    "partition",
    "constraint",
    "qos",
    "reservation",
    "nodelist",
    "exclude",
    "dependency",
    "begin",
    "signal",
    "mail-user",
    "mail-type",
]
_BAD_IN_WORD = re.compile(r"[\s\x00-\x1f\x7f\"'\\#]")
_NUMBER = r"\d{1,9}"
_TIME = re.compile(
    rf"(?:{_NUMBER}(?::\d{{1,9}}(?::\d{{1,9}})?)?|{_NUMBER}-\d{{1,9}}(?::\d{{1,9}}){{0,2}}"
    r"|infinite|unlimited)",
    re.IGNORECASE,
)
_SIGNAL = re.compile(r"(?:[BR]{1,2}:)?(?:SIG)?[A-Z0-9+-]{1,12}(?:@\d{1,5})?", re.IGNORECASE)
_ARG = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)

_OURS = {
    "sbatch": frozenset(["array", "chdir", "export", "export-file", "parsable", "wait", "wrap"]),
    "srun": frozenset(
        ["error", "export", "het-group", "input", "multi-prog", "output", "pty", "unbuffered"]
    ),
}
"""Arguments that would break the generated script."""
_RUNS_NOTHING = frozenset(["help", "test-only", "usage", "version"])


def check_options(cfg: Mapping[str, CfgVal]) -> None:
    """Raises ``InvalidInput`` for a value that Slurm could not read as one value.

    Names that only the cluster knows, such as accounts and partitions, are not checked.
    """
    for name in _WORDS:
        check_word(f"option `{name}`", cfg.get(name))
    time = cfg.get("time")
    if time is not None and not _TIME.fullmatch(str(time)):
        msg = (
            f"option `time` must be minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s, given: {time!r}; "
            "`1-12` is one day and twelve hours"
        )
        raise InvalidInput(msg)
    signal = cfg.get("signal")
    if signal is not None and not _SIGNAL.fullmatch(str(signal)):
        msg = f"option `signal` must look like USR1@120 (seconds before the end), given: {signal!r}"
        raise InvalidInput(msg)
    ends_on_failure(cfg.get("on_failure"))
    for name in ("comment", "job_dir", "container_image", "container_mounts"):
        check_text(f"option `{name}`", cfg.get(name))
    for name in ("comment", "job_dir"):  # sacct prints both, one job per line
        _check_line(name, cfg.get(name))
    if cfg.get("container_mounts") and not cfg.get("container_image"):
        logger.info("`container_mounts` matters only to roles that run in a container")


def _check_line(name: str, value: object) -> None:
    if any(ord(char) < ord(" ") for char in str(value or "")):
        msg = f"option `{name}` must be one line without control characters, given: {value!r}"
        raise InvalidInput(msg)


def check_text(what: str, value: object) -> None:
    """Raises ``InvalidInput`` unless the value is ``None`` or can be an argument of a program."""
    if value is not None and (not value or invalid_reason(str(value))):
        msg = (
            f"{what} must be a text, not empty and without NUL characters and lone surrogates, "
            f"given: {value!r}"
        )
        raise InvalidInput(msg)


def invalid_reason(text: str) -> str | None:
    """Returns the reason why no process can receive a text; ``None`` if one can.

    >>> invalid_reason("a\\0"), invalid_reason("\\ud83d"), invalid_reason("\\udc80 is a byte")
    ('a NUL character', 'a lone surrogate, `\\\\ud83d`', None)
    """
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as err:
        return f"a lone surrogate, `{ascii(text[err.start])[1:-1]}`"
    return None


def check_word(what: str, value: object) -> None:
    """Raises ``InvalidInput`` unless the value is ``None`` or one word of an ``#SBATCH`` line."""
    if value is None:
        return
    text = str(value)
    bad = _BAD_IN_WORD.search(text)
    found = f"it holds {bad.group()!r}" if bad else invalid_reason(text)
    if found or not text:
        msg = (
            f"{what} must be one word, without spaces, quotes, backslashes and `#`, "
            f"given: {text!r} ({found or 'it is empty'})"
        )
        raise InvalidInput(msg)


def parse_args(tool: str, text: object, option: str = "") -> dict[str, str | None]:
    """Parses ``--name=value --flag`` like a shell.

    >>> parse_args("srun", "--mpi=pmix --verbose")
    {'mpi': 'pmix', 'verbose': None}

    Args:
        tool: ``sbatch`` or ``srun``.
        option: the option with these arguments; empty for ``<tool>_args``.

    Raises:
        InvalidInput: for another form, and for arguments that the generated script sets itself.
    """
    if not text:
        return {}
    option = option or f"{tool}_args"
    try:
        words = shlex.split(str(text))
    except ValueError as err:
        msg = f"option `{option}` cannot be split into words ({err}), given: {text!r}"
        raise InvalidInput(msg) from None
    args: dict[str, str | None] = {}
    for word in words:
        match = _ARG.fullmatch(word)
        if match is None:
            msg = (
                f"option `{option}` takes arguments of the form --name=value or --flag, "
                f"given: {word!r}"
            )
            raise InvalidInput(msg)
        name, value = match.groups()
        _check_arg(tool, option, name, value)
        args[name] = value
    return args


def _check_arg(tool: str, option: str, name: str, value: str | None) -> None:
    if name in _OURS[tool]:
        msg = f"option `{option}` must not hold `--{name}`, which the generated script sets"
        raise InvalidInput(msg)
    if name in _RUNS_NOTHING:
        msg = f"option `{option}` must not hold `--{name}`, with which {tool} runs nothing"
        raise InvalidInput(msg)
    if tool == "sbatch":  # those of srun are quoted for the shell
        check_word(f"`--{name}` in option `{option}`", value)
    elif value is not None and (bad := invalid_reason(value)):
        msg = f"`--{name}` in option `{option}` must not hold {bad}, given: {value!r}"
        raise InvalidInput(msg)


def parse_role_args(text: object, roles: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Parses ``role: --name=value; other: --flag``: arguments of sbatch by role name.

    >>> parse_role_args("a: --constraint=a100; b: --exclude=n1", ["a", "b"])
    {'a': {'constraint': 'a100'}, 'b': {'exclude': 'n1'}}

    Raises:
        InvalidInput: for another form, or a role that the app does not have.
    """
    found = {}
    for part in str(text or "").split(";"):
        name, colon, args = part.partition(":")
        name = name.strip()
        if not part.strip():
            continue
        if not colon or name not in roles:
            msg = (
                "option `role_args` is `role: --name=value --flag; other: ...` with the names of "
                f"roles of the app ({', '.join(roles)}), given: {part.strip()!r}"
            )
            raise InvalidInput(msg)
        found[name] = parse_args("sbatch", args, "role_args")
    return found


_GPU_COUNTS = frozenset(["gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"])
_RIVALS = {
    "mem": frozenset(["mem-per-cpu", "mem-per-gpu"]),
    "cpus-per-task": frozenset(["cpus-per-gpu"]),
    "gpus-per-node": _GPU_COUNTS - {"gpus-per-node"},
    "gpus-per-task": _GPU_COUNTS - {"gpus-per-task"},
}
"""Arguments that request the same in another way; Slurm refuses some combinations."""
_GPU_IN_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?:[:=,]|$)")


def conflicts(name: str, given: Mapping[str, str | None]) -> bool:
    """Returns True if free-form arguments request the same as an option in another way.

    >>> conflicts("mem", {"mem-per-cpu": "2G"}), conflicts("gpus-per-node", {"gres": "gpu:a100:2"})
    (True, True)
    """
    by_gres = name.startswith("gpus") and _GPU_IN_GRES.search(given.get("gres") or "")
    return bool(by_gres or _RIVALS[name] & given.keys())


def signal_to_steps(signal: str) -> str:
    """Returns the value of ``--signal`` without ``B:``, which sends it to the batch script only.

    A hand-written script would pass the signal on to its programs; the generated one would be ended
    by it before a replica gets it.

    >>> signal_to_steps("B:USR1@60"), signal_to_steps("RB:USR1"), signal_to_steps("USR1")
    ('USR1@60', 'R:USR1', 'USR1')
    """
    flags, colon, rest = signal.rpartition(":")
    flags = re.sub("b", "", flags, flags=re.IGNORECASE)
    return f"{flags}{colon}{rest}" if flags else rest
