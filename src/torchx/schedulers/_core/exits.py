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


def exception_json(traceback: str, code: int | None, ended_ns: int | None) -> str:
    """A traceback that a replica printed, in the shape of an error file."""
    import json

    message = {
        "message": traceback.strip().split("\n")[-1],
        "errorCode": code,
        "extraInfo": {"py_callstack": traceback, "timestamp": (ended_ns or 0) // 1_000_000_000},
    }
    return json.dumps({"message": message})


def one_line_json(text: str) -> str:
    """The content of an error file: JSON as ``json.dumps`` writes it, anything else as it is."""
    import json

    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


# -- tracebacks ----------------------------------------------------------------------------------

_TRACEBACK = "Traceback (most recent call last):"

_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "recvValue",
    "ChildFailedError",
    "SignalException",
)
"""Errors of a rank whose peer has gone, as torch.distributed and torchrun word them."""


def is_consequence(text: str) -> bool:
    """Whether an error only tells of the failure of another process."""
    return any(words in text for words in _CONSEQUENCES)


def tracebacks_in(text: str) -> list[str]:
    """The Python tracebacks in a text, in their order.

    The prefix that torchrun puts before each line of a worker (``[trainer0]:``) is removed.
    """
    lines = text.split("\n")
    return [
        _block(lines[at:], line[: -len(_TRACEBACK)])
        for at, line in enumerate(lines)
        if line.endswith(_TRACEBACK)
    ]


def cause_in(text: str) -> str | None:
    """The first traceback that is no consequence of another failure, else the first one."""
    found = tracebacks_in(text)
    causes = (traceback for traceback in found if not is_consequence(traceback))
    return next(causes, found[0] if found else None)


def _block(lines: list[str], prefix: str) -> str:
    """The traceback that begins with the first line, up to the line that names the exception."""
    block = [lines[0][len(prefix) :]]
    for line in lines[1:]:
        if not line.startswith(prefix):
            if prefix:
                continue  # another worker's line in between
            break
        text = line[len(prefix) :]
        block.append(text)
        if text and not text.startswith((" ", "\t")):
            break
    return "\n".join(block)
