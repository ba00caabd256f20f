"""Finds the error of a Python program in what it printed."""

_TRACEBACK = "Traceback (most recent call last):"

_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "recvValue",
    "ChildFailedError",
    "SignalException",
)
"""What is said when another rank has gone: by torch.distributed, and by torchrun itself."""


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
