"""Streams the logs of every replica of an app into one file, for wrappers of the runner."""

import logging
import queue
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from torchx.runner import Runner
    from torchx.schedulers.api import Stream
    from torchx.specs import AppDef

logger = logging.getLogger(__name__)

_GREEN = "\033[32m"
_ENDC = "\033[0m"


def tee_logs(
    dst: TextIO,
    app_handle: str,
    regex: str | None,
    runner: "Runner",
    should_tail: bool = False,
    streams: "Stream | None" = None,
    colorize: bool = False,
) -> threading.Thread:
    """Returns an unstarted thread that prints the lines of all replicas, each prefixed with the
    replica's name.

    Args:
        regex: print only lines in which it is found; ``None`` for all.
        should_tail: go on until the app is terminal.
        streams: ``None`` leaves the choice to the scheduler.
        colorize: print the prefix in colour.
    """
    return threading.Thread(
        target=lambda: _start_threads_to_monitor_role_replicas(
            dst=dst,
            runner=runner,
            app_handle=app_handle,
            regex=regex,
            should_tail=should_tail,
            streams=streams,
            colorize=colorize,
        ),
        daemon=True,
    )


def _find_role_replicas(app: "AppDef", role_name: str | None) -> list[tuple[str, int]]:
    """Every replica of a role, or of all roles for ``None``."""
    return [
        (role.name, k)
        for role in app.roles
        if role_name is None or role.name == role_name
        for k in range(role.num_replicas)
    ]


def _prefix_line(prefix: str, line: str) -> str:
    """Puts the prefix before each part of the line that starts at the left margin."""
    inner, last = line[:-1], line[-1:]
    text = inner.replace("\n", f"\n{prefix}").replace("\r", f"\r{prefix}")
    if last == "\r":
        last = f"\r{prefix}"
    text += last
    return text if text.startswith("\r") else prefix + text


def _start_threads_to_monitor_role_replicas(
    dst: TextIO,
    runner: "Runner",
    app_handle: str,
    regex: str | None,
    should_tail: bool = False,
    streams: "Stream | None" = None,
    colorize: bool = False,
    role_name: str | None = None,
) -> None:
    app = runner.describe(app_handle)
    assert app is not None, f"the app {app_handle} does not exist"
    replicas = _find_role_replicas(app, role_name)
    if not replicas:
        names = [role.name for role in app.roles]
        msg = f"{role_name} is not a valid role name. Available: {names}"
        raise ValueError(msg)
    errors: queue.Queue[Exception] = queue.Queue()

    def monitor(role: str, k: int) -> None:
        name = f"{_GREEN}{role}/{k}{_ENDC}" if colorize else f"{role}/{k}"
        try:
            lines = runner.log_lines(
                app_handle, role, k, regex, should_tail=should_tail, streams=streams
            )
            for line in lines:
                dst.write(_prefix_line(f"{name} ", line.strip()) + "\n")
                dst.flush()
        except Exception as err:  # noqa: BLE001 - raised again in the waiting thread
            errors.put(err)

    threads = [threading.Thread(target=monitor, args=r, daemon=True) for r in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors.empty():
        return
    first = errors.get()
    while not errors.empty():
        logger.error("reading the logs failed: %s", errors.get())
    raise first
