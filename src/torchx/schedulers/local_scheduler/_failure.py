"""Why a replica failed: its error file, or else the traceback in what it printed."""

import json
import os

from torchx.specs.api import NONE

from ._record import JobRecord
from ._states import JobView, exit_message
from ._supervise.tree import attempt_dir

TAIL_BYTES = 262_144
"""How much of the end of a log is searched for a traceback."""
_TRACEBACK = "Traceback (most recent call last):"


def error_files(record: JobRecord, view: JobView) -> "dict[tuple[int, int], tuple[float, str]]":
    """Time (in seconds since the epoch) and content of the error files, by replica."""
    found = {}
    for (role, k), replica in view.replicas.items():
        path = record.error_file(role, k, replica.attempt)
        if path is None:
            continue
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
                written = os.fstat(f.fileno()).st_mtime
        except OSError:
            continue
        found[role, k] = (written, _one_line(text))
    return found


def _one_line(text: str) -> str:
    """JSON as ``json.dumps`` writes it; anything else as it is."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


def first_failure(
    record: JobRecord, view: JobView, files: "dict[tuple[int, int], tuple[float, str]]"
) -> str:
    """The structured error of the first failure; ``<NONE>`` if nothing failed.

    It is the oldest error file. Where there is none, or it does not tell what was raised (as when a
    worker of torchrun is not decorated with ``record``), the traceback is taken from the logs.
    """
    failed = [(r.ended_ns, key) for key, r in view.replicas.items() if r.code]
    if not files and not failed:
        return NONE
    if files:
        key, (_, text) = min(files.items(), key=lambda item: item[1][0])
        if "Traceback" in text:
            return text
    else:
        key, text = min(failed)[1], ""
    replica = view.replicas[key]
    folder = attempt_dir(record.replica_dir(*key), replica.attempt)
    traceback = find_traceback(folder)
    if traceback is None:
        return text or exit_message(replica)
    ended_s = replica.ended_ns // 1_000_000_000
    message = {
        "message": traceback.strip().split("\n")[-1],
        "errorCode": replica.code,
        "extraInfo": {"py_callstack": traceback, "timestamp": ended_s},
    }
    return json.dumps({"message": message})


def find_traceback(folder: str) -> str | None:
    """The first Python traceback near the end of an attempt's stderr.

    The prefix that torchrun puts before each line of a worker (``[trainer0]:``) is removed.
    """
    for name in ("stderr.log", "stdout.log"):
        try:
            with open(os.path.join(folder, name), "rb") as f:
                size = f.seek(0, os.SEEK_END)
                f.seek(max(0, size - TAIL_BYTES))
                lines = f.read().decode("utf-8", "replace").split("\n")
        except OSError:
            continue
        for at, line in enumerate(lines):
            if line.endswith(_TRACEBACK):
                return _block(lines[at:], line[: -len(_TRACEBACK)])
    return None


def _block(lines: "list[str]", prefix: str) -> str:
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
