"""Translates exceptions into messages for users, and exit codes."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGNAL = 128

_INSTALL_HINTS = {
    "boto3": "aws",
    "docker": "docker",
    "fsspec": "fsspec",
    "hydra": "hydra",
    "IPython": "notebook",
    "kubernetes": "kubernetes",
    "sagemaker": "aws",
}

_WHERE = "`torchx --log_level DEBUG ...` shows where this comes from"
_HINTS = {
    "MalformedAppHandleException": (
        "write the handle as `torchx run` and `torchx list` print it: SCHEDULER://SESSION/APP_ID"
    ),
    "UnknownSchedulerException": "`torchx runopts` shows every scheduler and its options",
    "UnknownAppException": "`torchx list -s SCHEDULER` shows the apps a scheduler knows",
    "InvalidRunConfigException": (
        "options come from `-cfg key=value[,key=value]` and from the scheduler's section of"
        " `.torchxconfig`; `torchx runopts SCHEDULER` shows them"
    ),
    "ComponentNotFoundException": "`torchx builtins` lists the components that come with torchx",
}

# valid input that does not match what exists
_NOT_USAGE = (
    "ComponentValidationException",
    "ConfigFileError",
    "ConfigFileNotFound",
    "ConfigMissing",
    "LogsNotFound",
    "RefusedByRegistry",
    "ReplicaNotRunning",
    "UnknownApp",
)


class Interrupted(KeyboardInterrupt):
    """The command was interrupted by a signal.

    Args:
        sigval: number of the signal.
    """

    def __init__(self, sigval: int) -> None:
        super().__init__(f"interrupted by signal {sigval}")
        self.sigval = sigval


class ReaderGone(Interrupted):
    """Nobody reads any more what the command writes. No ``OSError``: these are survived."""


class Failure:
    """The message, hint and exit code for an exception."""

    __slots__ = ("code", "hint", "kind", "message", "why")

    def __init__(
        self,
        kind: str,
        message: str,
        hint: str | None,
        code: int,
        why: "Explanation | None" = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.hint = hint
        self.code = code
        self.why = why
        """Why an app could not be launched, where that is what failed."""


def explain(err: BaseException) -> Failure:
    """Describes the exception in one message, with a hint where there is one."""
    kind = type(err).__name__
    unknown = getattr(err, "app_handle", None)
    if kind == "UnknownAppException" and unknown:  # in the words of the commands that look first
        from torchx.cli.cmd_base import missing_app, parse_app_handle

        scheduler, _, app_id = parse_app_handle(unknown)
        return Failure(kind, *missing_app(scheduler, app_id), EXIT_FAILED)
    place = place_in_user_code(err)
    hint = _hint(err)
    if place:
        raised = f"raised in {place}"
        hint = raised if hint in (None, _WHERE) else f"{raised}; {hint}"
    code = EXIT_USAGE if _is_usage(err) else EXIT_FAILED
    return Failure(kind, _message(err), hint, code, getattr(err, "explanation", None))


def _is_usage(err: BaseException) -> bool:
    """Returns True if the command line, or its defaults in a config file, are invalid."""
    from torchx.errors import InvalidInput

    if type(err).__name__ == "BadDefault":
        return True
    names = {cls.__name__ for cls in type(err).__mro__}
    return isinstance(err, InvalidInput) and names.isdisjoint(_NOT_USAGE)


def place_in_user_code(err: BaseException) -> str:
    """Returns file, line and function of the last frame of the user's code in the traceback.

    User's code is not ours, not Python's, and not of an installed package. Empty if there is none.
    """
    called = False
    place = ""
    trace = err.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(_OURS):
            called = True
        elif called and not _is_foreign(code.co_filename):
            where = "" if code.co_name == "<module>" else f", in `{code.co_name}`"
            place = f"{code.co_filename}:{trace.tb_lineno}{where}"
        trace = trace.tb_next
    return place


_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def _is_foreign(path: str) -> bool:
    """Returns True if the file is Python's, or belongs to an installed package."""
    if path.startswith("<") or f"{os.sep}site-packages{os.sep}" in path:
        return True
    return path.startswith(os.path.join(os.path.dirname(os.__file__), ""))


def signal_of(err: BaseException) -> int | None:
    """Returns the number of the signal behind the exception; `None` if it has no signal."""
    number = getattr(err, "sigval", None)  # Interrupted, SignalException of the local scheduler
    if isinstance(number, int):
        return int(number)
    return 2 if isinstance(err, KeyboardInterrupt) else None


def _message(err: BaseException) -> str:
    text = str(err)
    if isinstance(err, KeyError) and type(err) is KeyError and err.args:
        text = str(err.args[0])  # str(KeyError) shows the repr
    if not text:
        return type(err).__name__
    return text if _is_ours(err) else f"{type(err).__name__}: {text}"


def _is_ours(err: BaseException) -> bool:
    """Returns True for our own errors; messages of others need the name of their type."""
    from torchx.errors import TorchXError

    if isinstance(err, TorchXError | ModuleNotFoundError):
        return True
    if type(err) in (ValueError, NotImplementedError):
        return True
    return type(err).__module__.split(".")[0] == "torchx"


def _hint(err: BaseException) -> str | None:
    if isinstance(err, ModuleNotFoundError):
        extra = _INSTALL_HINTS.get((err.name or "").split(".")[0])
        if extra and "pip install" not in str(err):
            return f"install it with: pip install 'torchx[{extra}]'"
        return None
    for cls in type(err).__mro__:
        hint = _HINTS.get(cls.__name__)
        if hint:
            return hint
    return None if _is_ours(err) else _WHERE
