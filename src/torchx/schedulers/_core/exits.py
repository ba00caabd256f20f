"""Exit codes and errors of replicas: one set of numbers, words and JSON for all schedulers.

An exit code is what ``wait(2)`` says: signals are negative numbers.
"""

_SHELL_SIGNAL_BASE = 128
_LAST_SIGNAL = 64
_SHELL_WORDS = {
    126: "the command could not be executed",
    127: "command not found",
}


def from_shell(code: int) -> int:
    """The exit code behind a shell's or a container's, which count signals from 128.

    >>> from_shell(137), from_shell(3)
    (-9, 3)
    """
    signalled = _SHELL_SIGNAL_BASE < code <= _SHELL_SIGNAL_BASE + _LAST_SIGNAL
    return _SHELL_SIGNAL_BASE - code if signalled else code


def signal_name(number: int) -> str:
    """Name of a signal.

    >>> signal_name(9), signal_name(63)
    ('SIGKILL', 'signal 63')
    """
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(code: int | None, reason: str = "") -> str:
    """How a replica ended, in words.

    >>> describe_exit(-9, "out of memory"), describe_exit(3)
    ('killed by SIGKILL (out of memory)', 'exited with code 3')

    Args:
        code: ``None`` if the backend does not tell it.
        reason: the backend's own words; empty if there are none.
    """
    if code is None:
        return reason or "failed"
    how = f"killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    reason = reason or _SHELL_WORDS.get(code, "")
    return f"{how} ({reason})" if reason else how


def failure_json(words: str, code: int | None, ended_ns: int | None) -> str:
    """A failure without an error file, in the shape of one."""
    import json

    ended_s = (ended_ns or 0) // 1_000_000_000
    return json.dumps({"message": words, "errorCode": code, "timestamp": ended_s})


def exception_json(
    exception: str, traceback: str, code: int | None, ended_ns: int | None, rank: int | None = None
) -> str:
    """An exception that a replica printed, in the shape of an error file.

    Args:
        rank: of the process in the job; ``None`` if it is not known.
    """
    import json

    extra = {"py_callstack": traceback, "timestamp": (ended_ns or 0) // 1_000_000_000}
    if rank is not None:
        extra["rank"] = rank
    message = {"message": exception, "errorCode": code, "extraInfo": extra}
    return json.dumps({"message": message})


def with_extra(error: str, name: str, value: object) -> str:
    """The error of a replica, as its error file has it, with something more to tell of it."""
    import json

    try:
        content = json.loads(error)
        content["message"]["extraInfo"][name] = value
    except (ValueError, KeyError, TypeError):
        return error
    return json.dumps(content)


def one_line_json(text: str) -> str:
    """The content of an error file: JSON as ``json.dumps`` writes it, anything else as it is."""
    import json

    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "recvValue",
    "ChildFailedError",
    "SignalException",
    "KeyboardInterrupt",
)
"""Errors of a rank whose peer has gone, as torch.distributed and torchrun word them, or of a
process that was asked to end."""


def is_consequence(text: str) -> bool:
    """Whether an error only tells of the failure of another process."""
    return any(words in text for words in _CONSEQUENCES)
