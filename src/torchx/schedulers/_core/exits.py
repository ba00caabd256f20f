"""Exit codes and errors of replicas: the same numbers, words and JSON on all schedulers.

Exit codes are those of ``wait(2)``: signals are negative numbers.
"""

_SHELL_SIGNAL_BASE = 128
_LAST_SIGNAL = 64
_SHELL_WORDS = {
    126: "the command could not be executed",
    127: "command not found",
}


def from_shell(code: int) -> int:
    """Converts the exit code of a shell or container, which count signals from 128.

    >>> from_shell(137), from_shell(3)
    (-9, 3)
    """
    signalled = _SHELL_SIGNAL_BASE < code <= _SHELL_SIGNAL_BASE + _LAST_SIGNAL
    return _SHELL_SIGNAL_BASE - code if signalled else code


def signal_name(number: int) -> str:
    """Returns the name of a signal.

    >>> signal_name(9), signal_name(63)
    ('SIGKILL', 'signal 63')
    """
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(code: int | None, reason: str = "") -> str:
    """Describes how a replica ended.

    >>> describe_exit(-9, "out of memory"), describe_exit(3)
    ('killed by SIGKILL (out of memory)', 'exited with code 3')

    Args:
        code: ``None`` if the backend does not report it.
        reason: the backend's message; empty if there is none.
    """
    if code is None:
        return reason or "failed"
    how = f"killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    reason = reason or _SHELL_WORDS.get(code, "")
    return f"{how} ({reason})" if reason else how


def failure_json(words: str, code: int | None, ended_ns: int | None) -> str:
    """Returns a failure without an error file, in the format of one."""
    import json

    ended_s = (ended_ns or 0) // 1_000_000_000
    return json.dumps({"message": words, "errorCode": code, "timestamp": ended_s})


def exception_json(
    exception: str, traceback: str, code: int | None, ended_ns: int | None, rank: int | None = None
) -> str:
    """Returns an exception that a replica printed, in the format of an error file.

    Args:
        rank: of the process in the job; ``None`` if unknown.
    """
    import json

    extra = {"py_callstack": traceback, "timestamp": (ended_ns or 0) // 1_000_000_000}
    if rank is not None:
        extra["rank"] = rank
    message = {"message": exception, "errorCode": code, "extraInfo": extra}
    return json.dumps({"message": message})


def with_extra(error: str, name: str, value: object) -> str:
    """Returns the error of a replica, in the format of an error file, with one more field."""
    import json

    try:
        content = json.loads(error)
        content["message"]["extraInfo"][name] = value
    except (ValueError, KeyError, TypeError):
        return error
    return json.dumps(content)


def one_line_json(text: str) -> str:
    """Normalizes the content of an error file: JSON on one line, other text unchanged."""
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
"""Errors of a rank whose peer has gone, in the words of torch.distributed and torchrun, or of a
process that was told to end.
"""


def is_consequence(text: str) -> bool:
    """Returns True if an error is only the consequence of another process's failure."""
    return any(words in text for words in _CONSEQUENCES)
