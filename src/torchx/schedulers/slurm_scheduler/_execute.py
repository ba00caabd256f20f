"""Runs commands beside a task of a job: in a separate step that shares the job's resources."""

import os

from torchx.schedulers._core.executing import ExecRequest, ReplicaNotRunning
from torchx.schedulers._core.snapshot import ReplicaSnapshot

from . import _client
from ._states import SlurmSnapshot

_ENTER = """\
found=
for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    grep -qzs -- "^TORCHELASTIC_ERROR_FILE=.*$1\\$" "$dir/environ" || continue
    parent=$(sed -n 's/^PPid:[[:space:]]*//p' "$dir/status" 2>/dev/null)
    if ! grep -qzs -- "^TORCHELASTIC_ERROR_FILE=.*$1\\$" "/proc/$parent/environ"; then
        found=$pid
        break
    fi
done
if [ -z "$found" ]; then
    echo "torchx: the replica has no process on $(uname -n) any more" >&2
    exit 1
fi
if [ "$(readlink "/proc/$found/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; then
    echo "torchx: the replica runs in a container, use: nsenter -t $found -a" >&2
    exit 1
fi
term=$2
shift 2
while IFS= read -r -d '' entry; do
    export "$entry" 2>/dev/null
done <"/proc/$found/environ"
[ -z "$term" ] || export TERM="$term"
cd -- "$(readlink "/proc/$found/cwd")" || exit 1
exec "$@"
"""
"""Bash, like the batch script. Its arguments: the mark of the replica, our TERM, the command."""


def execute(snapshot: SlurmSnapshot, replica: ReplicaSnapshot, request: ExecRequest) -> int:
    """Runs the command and returns its exit code as a shell reports it.

    Raises:
        BackendUnavailable: if Slurm cannot be reached.
    """
    if not replica.host:
        msg = (
            f"the node of replica `{replica.role}/{replica.replica}` is not known yet;"
            " try again in a moment"
        )
        raise ReplicaNotRunning(msg)
    index = [role.name for role in snapshot.roles].index(replica.role)
    command = step_command(snapshot, index, replica, request)
    return _client.PROGRAMS.attach(command, request.stdin, request.stdout, request.stderr)


def step_command(
    snapshot: SlurmSnapshot, index: int, replica: ReplicaSnapshot, request: ExecRequest
) -> list[str]:
    """Returns the srun command.

    Args:
        index: index of the role, in the order of the app.
    """
    cluster = snapshot.job_dir.cluster if snapshot.job_dir is not None else ""
    group = snapshot.groups.get(replica.role)
    token = snapshot.job_dir.token if snapshot.job_dir is not None else ""
    notes = f"/{snapshot.app_id}-{token or 'none'}"
    mark = f"{notes}/error-{replica.attempt}-{index}-{replica.replica}.json"
    return [
        "srun",
        *([f"--clusters={cluster}"] if cluster else []),
        f"--jobid={snapshot.app_id}",
        *([f"--het-group={group}"] if group is not None else []),
        "--overlap",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={replica.host}",
        "--chdir=/",
        "--export=NONE",
        *(["--pty"] if request.tty else []),
        "/bin/bash",
        "-c",
        _ENTER,
        "torchx",
        mark,
        os.environ.get("TERM", "") if request.tty else "",
        *request.command,
    ]
