"""Runs a command beside a replica: with its environment, in its directory."""

import os
import subprocess
from typing import Any

from torchx.errors import BackendUnavailable, InvalidInput
from torchx.schedulers._core.command import run_attached
from torchx.schedulers._core.executing import COMMAND_NOT_FOUND, ExecRequest
from torchx.schedulers.api import ReplicaSnapshot
from torchx.settings import ENV_TORCHX_LOCAL_JOB

from ._record import JobRecord, replica_param
from ._request import join_path
from ._supervise import tree


def execute(record: JobRecord, replica: ReplicaSnapshot, request: ExecRequest) -> int:
    """Runs the command and returns its exit code as a shell reports it.

    Raises:
        BackendUnavailable: if the job runs on another machine.
    """
    from ._client import host

    if record.host != host():
        msg = (
            f"app `{record.app_id}` runs on `{record.host}`, and `local_cwd` reaches only the"
            " processes of this machine: log in there"
        )
        raise BackendUnavailable(msg)
    role = next(spec for spec in record.data["roles"] if spec["name"] == replica.role)
    param = replica_param(role, replica.replica)
    env = environment(record, replica, param.env)
    folder = param.cwd or os.getcwd()
    program = tree.find_executable(request.command[0], env.get("PATH", ""), folder)
    if program is None:
        os.write(request.stderr, f"{request.command[0]}: command not found\n".encode())
        return COMMAND_NOT_FOUND
    try:
        return run_attached(
            [program, *request.command[1:]],
            request.stdin,
            request.stdout,
            request.stderr,
            env,
            folder,
        )
    except (OSError, subprocess.SubprocessError) as err:
        raise InvalidInput(f"`{request.command[0]}` cannot be run: {err}") from None


def environment(
    record: JobRecord, replica: ReplicaSnapshot, declared: "dict[str, str]"
) -> "dict[str, str]":
    """Returns the running process's variables; if unreadable, ours with the declared ones."""
    env = _of_process(replica.native_id, record.app_id)
    if env is None:
        path = join_path(declared.get("PATH"), os.environ.get("PATH", ""))
        env = {**os.environ, **declared, ENV_TORCHX_LOCAL_JOB: record.app_id}
        if path:
            env["PATH"] = path
    if "TERM" in os.environ:
        env["TERM"] = os.environ["TERM"]  # the terminal is ours
    return env


def _of_process(pid: str, app_id: str) -> "dict[str, str] | None":
    """Returns the environment of a process of that job; ``None`` if not readable."""
    try:
        with open(f"/proc/{int(pid)}/environ", "rb") as f:
            data = f.read()
    except (OSError, ValueError):
        return None
    found: dict[str, Any] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if name and equals:
            found[os.fsdecode(name)] = os.fsdecode(value)
    # a program may have written its title over them
    return found if found.get(ENV_TORCHX_LOCAL_JOB) == app_id else None
