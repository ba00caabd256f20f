"""Why a replica failed: its error file, or else the traceback in what it printed."""

import json
import os

from torchx.schedulers._tracebacks import is_consequence, tracebacks_in
from torchx.specs.api import NONE

from ._record import JobRecord
from ._states import JobView, exit_message
from ._supervise.tree import attempt_dir

TAIL_BYTES = 262_144
"""How much of the end of a log is searched for a traceback."""


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

    It is the oldest error file, but for those that only tell of the loss of a peer, which is what
    the first failure does to others. Where no file tells what was raised (as when a worker of
    torchrun is not decorated with ``record``), the traceback is taken from the logs.
    """
    failed = [(r.ended_ns, key) for key, r in view.replicas.items() if r.code]
    if not files and not failed:
        return NONE
    by_age = sorted(files.items(), key=lambda item: item[1][0])
    told = [text for _, (_, text) in by_age if "Traceback" in text]
    if told and not is_consequence(told[0]):
        return told[0]
    keys = [key for key, _ in by_age]
    keys += [key for _, key in sorted(failed) if key not in files]
    causes = [text for text in told if not is_consequence(text)]
    printed = None if causes else _printed_error(record, view, keys)
    if causes or (told and (printed is None or is_consequence(printed))):
        return (causes or told)[0]
    return printed or (by_age[0][1][1] if by_age else exit_message(view.replicas[keys[0]]))


def _printed_error(record: JobRecord, view: JobView, keys: "list[tuple[int, int]]") -> str | None:
    """The first traceback that the replicas printed and that is no consequence of another."""
    found = []
    for key in keys:
        replica = view.replicas[key]
        folder = attempt_dir(record.replica_dir(*key), replica.attempt)
        found += [(replica, text) for text in find_tracebacks(folder)]
    if not found:
        return None
    replica, traceback = next((f for f in found if not is_consequence(f[1])), found[0])
    ended_s = replica.ended_ns // 1_000_000_000
    message = {
        "message": traceback.strip().split("\n")[-1],
        "errorCode": replica.code,
        "extraInfo": {"py_callstack": traceback, "timestamp": ended_s},
    }
    return json.dumps({"message": message})


def find_tracebacks(folder: str) -> "list[str]":
    """The Python tracebacks near the end of what an attempt printed, in their order."""
    for name in ("stderr.log", "stdout.log"):
        try:
            with open(os.path.join(folder, name), "rb") as f:
                size = f.seek(0, os.SEEK_END)
                f.seek(max(0, size - TAIL_BYTES))
                text = f.read().decode("utf-8", "replace")
        except OSError:
            continue
        found = tracebacks_in(text)
        if found:
            return found
    return []
