"""Commands in a running replica: the request, and the shared checks."""

from collections.abc import Sequence

from torchx._startup.dataclass import light_dataclass
from torchx._words import did_you_mean
from torchx.errors import InvalidInput, UnknownName, UnsupportedRequest
from torchx.settings import ENV_TORCHX_EXEC
from torchx.specs.api import AppState, is_terminal

from .snapshot import AppSnapshot, ReplicaKey, ReplicaSnapshot

COMMAND_NOT_FOUND = 127
"""Exit code of a command that does not exist, as a shell reports it."""


@light_dataclass(frozen=True)
class ExecRequest:
    """A command, and the file descriptors of this process that it is connected with."""

    command: tuple[str, ...]
    tty: bool = False
    """It gets a terminal, and what it prints is one stream, that of ``stdout``."""
    stdin: int | None = None
    """``None``: it reads nothing."""
    stdout: int = 1
    stderr: int = 2


class ReplicaNotRunning(InvalidInput):
    """The replica has ended or has not started, so that nothing can be done in it."""


def check_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command as it is run.

    Raises:
        InvalidInput: if it is empty, or holds what no process can receive.
    """
    if isinstance(command, str) or not command or not command[0]:
        msg = f"give a command as a list of words, the program first, given: {command!r}"
        raise InvalidInput(msg)
    for word in command:
        if not isinstance(word, str) or "\0" in word:
            raise InvalidInput(f"{word!r} cannot be a word of a command")
    return tuple(command)


def running_replica(snapshot: AppSnapshot, wanted: ReplicaKey | None) -> ReplicaSnapshot:
    """Returns the requested replica, which must run; for ``None``, the first running one.

    Raises:
        UnknownName: if the app has no such role or replica.
        ReplicaNotRunning: if it has ended, or has not started yet.
    """
    if wanted is None:
        running = [r for r in snapshot.replicas if r.state is AppState.RUNNING]
        if running:
            return running[0]
        if not snapshot.replicas:
            raise ReplicaNotRunning(f"app `{snapshot.app_id}` is {snapshot.state}, none runs")
        found: ReplicaSnapshot | None = snapshot.replicas[0]
    else:
        found = snapshot.find(wanted)
    if found is None:
        assert wanted is not None
        raise UnknownName(_no_replica(snapshot, wanted))
    if found.state is not AppState.RUNNING:
        raise ReplicaNotRunning(_not_running(snapshot, found))
    return found


def _no_replica(snapshot: AppSnapshot, wanted: ReplicaKey) -> str:
    known = ", ".join(f"{r.role}/{r.replica}" for r in snapshot.replicas[:10])
    more = ", ..." if len(snapshot.replicas) > 10 else ""
    name = f"{wanted[0]}/{wanted[1]}"
    meant = did_you_mean(name, (f"{r.role}/{r.replica}" for r in snapshot.replicas))
    return (
        f"app `{snapshot.app_id}` has no replica `{name}`, it has: {known}{more}"
        f"{meant and f'.{meant}'}"
    )


def _not_running(snapshot: AppSnapshot, replica: ReplicaSnapshot) -> str:
    name = f"replica `{replica.role}/{replica.replica}` of app `{snapshot.app_id}`"
    if is_terminal(replica.state):
        how = f" ({replica.ending})" if replica.state is AppState.FAILED else ""
        return f"{name} has ended, it is {replica.state.name}{how}; `torchx log` shows its output"
    why = f" ({replica.reason})" if replica.reason else ""
    return f"{name} does not run yet, it is {replica.state.name}{why}; try again when it runs"


def cannot_execute(scheduler: str, replica: ReplicaSnapshot) -> UnsupportedRequest:
    """Returns the error of a scheduler that cannot run commands in a replica."""
    return UnsupportedRequest(
        f"`{scheduler}` cannot run a command in a replica; {_instead(replica, 'log in to')}"
    )


def cannot_forward(
    scheduler: str, replica: ReplicaSnapshot | None, port: int, others: Sequence[str] = ()
) -> UnsupportedRequest:
    """Returns the error of a scheduler that cannot reach the ports of a replica.

    Args:
        replica: ``None`` if none is running.
        others: names of the schedulers that can.
    """
    can = " and ".join(f"`{name}`" for name in others)
    refusal = f"`{scheduler}` cannot forward ports{can and f', as {can} can'}"
    return UnsupportedRequest(f"{refusal}; {_instead(replica, f'connect to port {port} of')}")


def _instead(replica: ReplicaSnapshot | None, verb: str) -> str:
    if replica is not None and replica.host:
        return f"{verb} its host instead: {replica.host}"
    return f"{verb} its host instead, which `torchx status` may name"


def signal_script(mark: str, signal: str) -> str:
    """Returns a shell script that signals all processes with the mark in their environment.

    A terminal does that for its process group; without a terminal this is the only way.
    """
    return (
        "for d in /proc/[0-9]*; do"
        f" if grep -q '{ENV_TORCHX_EXEC}={mark}' $d/environ 2>/dev/null;"
        f" then kill -{signal} ${{d#/proc/}} 2>/dev/null; fi; done; exit 0"
    )
