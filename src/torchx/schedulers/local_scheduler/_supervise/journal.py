"""Writes the record of one job; see ``format`` for what is written."""

import os
import time

from .format import TERMINAL, dumps, event

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from typing import Any

    from .plan import Role


class Journal:
    """The journal of one job, to which lines are appended."""

    def __init__(self, job_dir: str) -> None:
        self._job_dir = job_dir
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(f"{job_dir}/journal", flags, 0o600)
        self._pending = ""

    def add(self, line: str) -> None:
        """Writes the line with the next ``flush``."""
        self._pending += line

    def flush(self) -> bool:
        """Writes the added lines; returns True if there were any. Tolerates a full disk."""
        if not self._pending:
            return False
        data, self._pending = self._pending.encode("utf-8", "replace"), ""
        try:
            write_all(self._fd, data)
        except OSError:
            free_reserve(self._job_dir)  # frees the space that was reserved for this
            try:
                write_all(self._fd, b"\n" + data)
            except OSError as err:
                complain(f"cannot write the journal: {err}\n")
        return True


def complain(text: str) -> None:
    """Writes to the supervisor's log, which may be on the full disk itself."""
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        pass


def append_line(path: str, line: str) -> None:
    """Appends one line with a single ``write``; nothing is left open."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, line.encode("utf-8", "replace"))
    finally:
        os.close(fd)


def write_all(fd: int, data: "bytes | memoryview") -> None:
    """Writes every byte, however many calls that takes."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def finish(home: str, fields: "tuple[str, str, str]", state: str, times: "tuple[int, int]") -> None:
    """Moves a job from the active ones to the index of finished ones.

    Args:
        home: the folder that holds ``index`` and ``active``.
        fields: app id, session and name.
        state: the terminal state's name.
        times: when the job was submitted and when it ended, in ns since the epoch.
    """
    app_id, session, name = fields
    append_line(f"{home}/index", f"{app_id}\t{session}\t{state}\t{times[0]}\t{times[1]}\t{name}\n")
    try:
        os.unlink(f"{home}/active/{app_id}")
    except FileNotFoundError:
        pass


def free_reserve(job_dir: str) -> None:
    """Frees the space that was reserved for a job's last lines."""
    try:
        os.unlink(f"{job_dir}/reserve")
    except OSError:
        pass


def complete(spec: "dict[str, Any]", message: str) -> None:
    """Writes the end of the journal that the supervisor could not write.

    The job is CANCELLED if that was requested before; a job that had ended keeps its state.
    """
    job_dir = str(spec["job_dir"])
    free_reserve(job_dir)
    state, ended = _known_end(f"{job_dir}/journal")
    line = ""
    if not ended:
        ended = time.time_ns()
        line = event("state", ended, state, message)
    append_line(f"{job_dir}/journal", f"\n{line}")  # a truncated line is not part of it
    finish(
        str(spec["home"]),
        (str(spec["app_id"]), str(spec["session"]), str(spec["name"])),
        state,
        (int(spec["created_ns"]), ended),
    )


def _known_end(path: str) -> "tuple[str, int]":
    """Returns the final or coming state of the journal, and its time; 0 if it has not ended."""
    planned = "FAILED"
    try:
        with open(path, "rb") as f:
            lines = f.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return planned, 0
    for line in lines:
        kind, _, rest = line.partition(", ")
        if kind not in ('["state"', '["ending"') or not line.endswith("]"):
            continue
        time_ns, state = [*rest.split(", ", 2), ""][:2]
        state = state.strip('"]')
        if kind == '["state"' and state in TERMINAL and time_ns.isdigit():
            return state, int(time_ns)
        if kind == '["ending"' and state == "CANCELLED":
            planned = state
    return planned, 0


def write_success(spec: "dict[str, Any]", roles: "list[Role]", final: "tuple[str, int]") -> None:
    """Writes the file whose existence marks the logs as complete, however the job ended.

    Args:
        final: the state, and when it was reached in ns since the epoch.
    """
    log_dir = str(spec["app_log_dir"])
    data = {
        "app_id": spec["app_id"],
        "log_dir": log_dir,
        "final_state": final[0],
        "last_updated": final[1] / 1e9,
        "roles": {
            role.name: [
                {
                    "replica_id": r.index,
                    "pid": r.pid,
                    "exitcode": r.code,
                    "stdout": f"{r.attempt_dir}/stdout.log",
                    "stderr": f"{r.attempt_dir}/stderr.log",
                    "error_file": r.env.get("TORCHELASTIC_ERROR_FILE", "<N/A>"),
                }
                for r in role.replicas
            ]
            for role in roles
        },
    }
    temporary = f"{log_dir}/.SUCCESS.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, dumps(data).encode())
        finally:
            os.close(fd)
        os.rename(temporary, f"{log_dir}/SUCCESS")
    except OSError as err:
        complain(f"cannot write {temporary}: {err}\n")
