"""The reports of ``torchx run`` about its job: its launch, its end, and jobs left running.

On a terminal in a few short lines, elsewhere in log records.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchx.cli import _output
from torchx.cli._explained import app_name, explained, hints, place_of
from torchx.cli._look import Look, duration, is_terminal
from torchx.errors import BackendUnavailable
from torchx.runner import Runner
from torchx.specs import AppState, AppStatus, parse_app_handle

if TYPE_CHECKING:
    from torchx.schedulers.causes import Explanation

_LEAST = 20
"""Columns of the last lines of a replica, however narrow the terminal is."""


def tell(write: Callable[[Any], None], result: object) -> None:
    """Writes a result to stdout. The job goes on if the reader has gone."""
    try:
        write(result)
    except BrokenPipeError:
        _output.close_stdout()


def outcome_json(handle: str, status: AppStatus | None) -> dict[str, object]:
    """Returns the output of ``run --json``."""
    scheduler, _, app_id = parse_app_handle(handle)
    return {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": None if status is None else status.state.name,
        "ui_url": None if status is None else status.ui_url,
    }


def name_of(handle: str) -> str:
    """The job as it is called once its handle was shown: that again where records are kept."""
    return app_name(handle) if _output.is_calm() else handle


def advice(handle: str) -> str:
    """Returns the commands for a job that goes on."""
    name = name_of(handle)
    return (
        f"check it with `torchx status {name}`, follow it with `torchx log -f {name}`,"
        f" end it with `torchx cancel {name}`"
    )


def interruption(signal: str, handle: str | None, launching: bool, attached: bool) -> str:
    """Returns the message for a run that a signal ended: the fate of its job.

    Args:
        attached: the job ends with the command.
    """
    if not launching:
        return f"interrupted by {signal} before the job was launched"
    if attached:
        job = name_of(handle) if handle else "(being launched)"
        return f"job `{job}` was cancelled ({signal})"
    if handle is None:
        return f"interrupted by {signal} while the job was being launched, see `torchx list`"
    ended = f"({signal} ended only this command)"
    return f"job `{name_of(handle)}` keeps running {ended}; {advice(handle)}"


class RunReport:
    """Reports one run.

    Args:
        as_json: stdout gets one JSON object.
    """

    def __init__(self, runner: Runner, as_json: bool) -> None:
        self._runner = runner
        self.as_json = as_json
        self.calm = sys.stderr is not None and _output.is_calm()
        self._began = time.monotonic()

    def launched(self, handle: str) -> None:
        """Reports the launched job, once; only the handle goes to stdout."""
        self._began = time.monotonic()
        shown = not self.as_json and sys.stdout is not None
        if not self.calm:
            _output.log().info("launched app: %s", handle)
        elif shown and is_terminal(sys.stdout):
            look = Look(sys.stdout)
            tell(_output.out, f"{look.mark(AppState.RUNNING)} {look.bold(handle)}")
            return
        elif not _output.is_quiet():
            look = Look(sys.stderr)
            scheduler, _, app_id = parse_app_handle(handle)
            mark = look.mark(AppState.RUNNING)
            _output.say(f"{mark} {look.bold(app_id)} {look.dim(scheduler)}")
        if shown:
            tell(_output.out, handle)

    def left_alone(self, handle: str, status: AppStatus | None) -> None:
        """Reports a job that is left running, and the commands for it."""
        if status is not None:
            self._tell_state(handle, status)
        if status is None or self.calm:
            name = app_name(handle) if self.calm else handle
            _output.log().info("follow it with: torchx log -f %s", name)
        self._report_unwatched(handle)

    def _tell_state(self, handle: str, status: AppStatus) -> None:
        """Reports the state of a job that is left running, and why it waits."""
        found = explained(self._runner, handle, status.state)
        if self.calm:
            if not _output.is_quiet():
                look = Look(sys.stderr)
                why = f": {found.line}" if found is not None else ""
                text = f"{look.mark(status.state)} {look.state(status.state)}{why}"
                _output.say("\n".join(look.wrap(text, "  ")))
            return
        _output.log().info("%s", status.format())
        if found is not None:
            _output.log().info("why: %s", found.line)

    def _report_unwatched(self, handle: str) -> None:
        """Warns if an option of the job has no effect because nothing waits for it."""
        needs_watcher = getattr(self._runner, "needs_watcher", None)  # a substitute may lack it
        try:
            unwatched = needs_watcher is not None and needs_watcher(handle)
        except BackendUnavailable:  # the job is launched all the same
            return
        if unwatched:
            _output.log().info(
                "when a replica fails, nobody ends the others, since nothing waits for the job;"
                " `-cfg on_failure=wait` says that this is wanted"
            )

    def finished(self, handle: str, status: AppStatus, streamed: bool) -> None:
        """Reports the end of the job, in one line if it succeeded."""
        good = status.state is AppState.SUCCEEDED
        if not self.calm:
            if good:
                _output.log().info("job finished: %s", status.state)
            else:
                _output.log().error("%s", failure_text(self._runner, handle, status))
        elif not good or not _output.is_quiet():
            look = Look(sys.stderr)
            lines = [self._last_line(look, handle, status)]
            if not good:
                lines += _failure_lines(look, self._runner, handle, status, streamed)
            _output.say("\n".join(lines))

    def _last_line(self, look: Look, handle: str, status: AppStatus) -> str:
        took = duration(time.monotonic() - self._began)
        again = status.num_restarts
        restarts = f", {again} restart{'s' if again > 1 else ''}" if again > 0 else ""
        name = look.bold(parse_app_handle(handle).app_id)
        mark, state = look.mark(status.state), look.state(status.state)
        return f"{mark} {name} {state} after {took}{restarts}"


def _failure_lines(
    look: Look, runner: Runner, handle: str, status: AppStatus, streamed: bool
) -> list[str]:
    """Returns the cause, the last lines unless already on the screen, and the next command."""
    lines: list[str] = []
    found = explained(runner, handle, status.state)
    if found is not None:
        lines += look.wrap(f"  {look.bold(found.cause.value)}: {found.summary}", "  ")
        place = place_of(found)
        if place:
            lines.append(f"  {look.dim(f'at {place}')}")
    failed = getattr(runner, "failed_replicas", _none_known)(handle)
    replicas = sum(len(role.replicas) for role in status.roles)
    for replica in failed[:1]:
        if not streamed or replicas > 1:
            prefix = f"  {replica.role}/{replica.replica} {look.sign('bar')} "
            room = max(look.width - len(prefix), _LEAST)
            parts = [p for line in _last_lines(found, replica) for p in look.wrap(line, "  ", room)]
            lines += [look.dim(prefix) + part for part in parts]
        if replica.log_path:
            lines.append(f"  {look.dim(replica.log_path)}")
    if len(failed) > 1:
        others = ", ".join(f"{r.role}/{r.replica}" for r in failed[1:9])
        more = f" and {len(failed) - 9} more" if len(failed) > 9 else ""
        lines += look.wrap(f"  failed as well: {others}{more}", "  ")
    if found is not None:
        return [*lines, *hints(look, handle, found)]
    return [*lines, f"  {look.sign('arrow')} torchx status {app_name(handle)}"]


def _last_lines(found: "Explanation | None", replica: Any) -> list[str]:
    """Returns the end of the explained failure's traceback, else of its output."""
    name = f"{replica.role}/{replica.replica}"
    if found is not None and found.replica == name:
        return [e.text for e in found.evidence if e.source == "log"]
    return [line.rstrip() for line in replica.last_lines]


def failure_text(runner: Runner, handle: str, status: AppStatus) -> str:
    """Returns the final state, and for failed replicas exit code, reason, last lines, log file."""
    failed = getattr(runner, "failed_replicas", _none_known)(handle)
    lines = [f"job `{handle}` {status.state}{_first_error(failed)}"]
    for replica in failed:
        attempt = f", attempt {replica.attempt}" if replica.attempt else ""
        lines.append(f"  {replica.role}/{replica.replica}{attempt}: {_ending(replica)}")
        lines += [f"    | {line.rstrip()}" for line in replica.last_lines]
        if replica.log_path:
            lines.append(f"    log: {replica.log_path}")
    if not failed:
        lines.append(status.format())
    elif status.msg and not any(str(replica.reason) in status.msg for replica in failed):
        lines.append(f"  {status.msg}")
    found = explained(runner, handle, status.state)
    if found is not None:
        lines.append(f"  why: {found.line}")
    return "\n".join(lines).rstrip()


def _first_error(failed: Sequence[Any]) -> str:  # of FailedReplica, or of a substitute
    """Returns the first exception, to append to a sentence; empty if none is known."""
    error = getattr(failed[0], "error", "") if failed else ""
    return f": {failed[0].role}/{failed[0].replica}: {error}" if error else ""


def _none_known(_handle: str) -> list[Any]:
    return []


def _ending(replica: Any) -> str:  # a FailedReplica, or a substitute
    reason = str(replica.reason or "")
    how = _exit_text(replica.exit_code)
    signal = how.rpartition(" ")[2]  # the number or the name of the signal
    if not how or (reason and signal in reason):
        return reason or "failed"
    return f"{how}, {reason}" if reason else how


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
