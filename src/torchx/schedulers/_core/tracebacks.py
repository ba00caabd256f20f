"""Finds Python exceptions in the output of replicas: type, place and rank."""

import re
from collections.abc import Iterator, Sequence

from torchx._startup.dataclass import light_dataclass

from .exits import describe_exit, is_consequence

_HEADER = re.compile(r"(.*?)(  \+ Exception Group )?Traceback \(most recent call last\):\s*$")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_CHAIN_GAP = 40
"""Lines of a message that may precede the sentence that joins two exceptions."""
_TEE = re.compile(r"\[[^\]\s]*\]:")
"""Torchrun's prefix of each line of a worker: ``[1]:``, ``[trainer1]:``."""
_RANK = re.compile(r"\[rank(\d+)\]:")
"""The prefix by torch.distributed of each line of an exception."""
_LOCAL_RANK = re.compile(r"\[[^\]\s]*?(\d+)\]:")
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):\n(?:.*\n){1,4}?"
    r".*\brank +: (\d+) \(local_rank: (\d+)\)\n.*\bexitcode +: (-?\d+)"
)
_BARE_SYNTAX_ERROR = re.compile(
    r'^  File "[^"\n]+", line \d+\n(?:    .*\n){0,4}(?:Syntax|Indentation|Tab)Error: .*$',
    re.MULTILINE,
)
_FRAME = re.compile(r'^[ |]*File "([^"\n]+)", line (\d+)(?:, in (.+))?$', re.MULTILINE)
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3|^<")
_LONGEST = 500
"""Characters of an exception's message that are shown."""


@light_dataclass(frozen=True)
class Raised:
    """The exception that ended a process."""

    exception: str
    """Type and message, on one line."""
    callstack: str = ""
    """The traceback, with exceptions that led to this one; empty if there is none."""
    rank: int | None = None
    local_rank: int | None = None
    replica: str = ""
    """Role and index of the replica that raised it, if it is another one."""


def raised_in(text: str) -> Raised | None:
    """Returns the first exception among the processes of a replica, from their output.

    torchrun reports which worker failed first; without it, the first process counts whose exception
    is not the consequence of another's. So it does if torchrun names one that only lost another: of
    workers that ended between two of its checks, it names the one with the lowest rank. A process
    was ended by its last exception, except for those that only report that it, or another one, was
    told to end.
    """
    found = [*_last_of_each_process(text)]
    causes = [raised for raised in found if not is_consequence(raised.callstack)]
    roots = _ROOT_CAUSE.findall(text)
    if roots:
        root = _of_root(found, *map(int, roots[-1]))
        if not causes or not is_consequence(root.callstack):
            return root
    return next(iter(causes or found), None)


def _of_root(found: list[Raised], rank: int, local_rank: int, code: int) -> Raised:
    """Returns the exception of the worker that failed first according to torchrun."""
    own = [r for r in found if r.rank == rank or (r.rank is None and r.local_rank == local_rank)]
    if not own:  # printed without a prefix, or not at all
        own = [raised for raised in found if not is_consequence(raised.callstack)]
    if not own:
        return Raised(describe_exit(code), rank=rank, local_rank=local_rank)
    return Raised(own[-1].exception, own[-1].callstack, rank, local_rank)


def rank_in(text: str, exception: str) -> int | None:
    """Returns the rank that raised an exception, from the output of a replica's processes."""
    found = raised_in(text)
    return found.rank if found is not None and found.exception == exception else None


def _last_of_each_process(text: str) -> Iterator[Raised]:
    """Yields the last exception of each process, in the order printed."""
    lines = text.split("\n")
    last: dict[str, tuple[int, str]] = {}
    for prefix in dict.fromkeys(_prefixes(lines)):
        for at, callstack in _tracebacks(lines, prefix):
            if prefix not in last or not is_consequence(callstack):
                last[prefix] = (at, callstack)
    if not last:
        for bare in _BARE_SYNTAX_ERROR.finditer(text):
            last[""] = (0, bare.group())
    for prefix, (_, callstack) in sorted(last.items(), key=lambda item: item[1][0]):
        rank, local_rank = _RANK.search(prefix), _LOCAL_RANK.search(_RANK.sub("", prefix))
        yield Raised(
            exception_of(callstack),
            callstack,
            int(rank.group(1)) if rank else None,
            int(local_rank.group(1)) if local_rank else None,
        )


def _prefixes(lines: Sequence[str]) -> Iterator[str]:
    """Yields the prefixes of the lines of tracebacks in a text."""
    for at, line in enumerate(lines):
        header = _HEADER.match(line) if "Traceback" in line else None
        if header is None:
            continue
        prefix, group = header.groups()
        first = f"{prefix}  | " if group else prefix
        following = lines[at + 1 : at + 1 + _CHAIN_GAP]
        if any(other.startswith(f"{first}  ") for other in following):
            yield prefix
        elif any(other.startswith('  File "') for other in following[:1]):
            yield ""  # words of a message, as in "Original Traceback"


def _tracebacks(lines: Sequence[str], prefix: str) -> Iterator[tuple[int, str]]:
    """Yields the tracebacks of one process, each with the index of its last line."""
    own = [
        (at, line[len(prefix) :])
        for at, line in enumerate(lines)
        if line.startswith(prefix) and (prefix or not _TEE.match(line))
    ]
    texts = [line for _, line in own]
    i = 0
    while i < len(texts):
        if not _begins(texts, i):
            i += 1
            continue
        begin = i
        i = _end_of_block(texts, i)
        while (following := _chained_at(texts, i)) is not None:
            i = _end_of_block(texts, following)
        block = texts[begin:i]
        block[0] = block[0][block[0].index("Traceback") :] if "+ Exc" not in block[0] else block[0]
        if any("File " in line for line in block):
            yield own[min(i, len(own)) - 1][0], "\n".join(block)


def _begins(texts: Sequence[str], i: int) -> bool:
    """Returns True if a traceback begins here that is not part of torchrun's summary."""
    header = _HEADER.match(texts[i])
    return header is not None and "traceback :" not in header.group(1)


def _end_of_block(texts: Sequence[str], i: int) -> int:
    """Returns the index after the line that names the exception."""
    grouped = "+ Exception Group" in texts[i]
    i += 1
    while i < len(texts):
        line = texts[i].removeprefix("  | ") if grouped else texts[i]
        i += 1
        if line and not line.startswith((" ", "\t")):
            break
    return i


def _chained_at(texts: Sequence[str], i: int) -> int | None:
    """Returns the index of the exception chained to the one that ends here."""
    for j in range(i, min(i + _CHAIN_GAP, len(texts))):
        if texts[j] in _CHAINED:
            rest = range(j + 1, min(j + 3, len(texts)))
            return next((k for k in rest if _begins(texts, k)), None)
        if _HEADER.match(texts[j]):
            return None
    return None


def exception_of(callstack: str) -> str:
    """Returns type and message of the exception at the end of a traceback.

    >>> exception_of('Traceback (most recent call last):\\n  File "a.py", line 1\\nValueError: no')
    'ValueError: no'
    """
    last = callstack.rstrip().rsplit("\n", 1)[-1]
    return last.removeprefix("  | ").strip().removeprefix("__main__.")  # as in Python 3.10


# -- in words --------------------------------------------------------------------------------------


def raised_by(error: str | None) -> Raised | None:
    """Returns the exception in a replica's error, from its error file or ``exception_json``."""
    import json

    try:
        message = json.loads(error or "")["message"]
        text = str(message["message"])
        extra = message["extraInfo"]
        callstack = str(extra["py_callstack"])
    except (ValueError, KeyError, TypeError):
        return None
    rank = extra.get("rank")
    first = next((line.strip() for line in text.split("\n") if line.strip()), "")
    if not first:
        return None
    elsewhere = str(extra.get("replica", ""))
    return Raised(first, callstack, rank if isinstance(rank, int) else None, replica=elsewhere)


def place_of(callstack: str) -> str:
    """Returns file, line and function of the innermost call outside installed packages.

    >>> place_of('  File "/app/train.py", line 41, in step')
    '/app/train.py:41 in step'
    """
    frames = _FRAME.findall(callstack)
    own = [frame for frame in frames if not _INSTALLED.search(frame[0])] or frames
    if not own:
        return ""
    path, line, function = own[-1]
    within = f" in {function}" if function and function != "<module>" else ""
    return f"{path}:{line}{within}"


def in_words(error: str | None) -> str:
    """Returns rank, exception and place of a replica's error in one line; empty if none.

    >>> in_words('{"message": {"message": "E: no", "extraInfo": {"py_callstack": "", "rank": 1}}}')
    'rank 1: E: no'
    """
    raised = raised_by(error)
    if raised is None:
        return ""
    text = raised.exception
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    place = place_of(raised.callstack)
    who = raised.replica
    if raised.rank is not None:
        who = f"{who} rank {raised.rank}".strip()
    return (f"{who}: " if who else "") + text + (f" ({place})" if place else "")
