"""Launches that are interrupted at random instants leave nothing, or an app that can be reached."""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers.api import CfgVal, ListAppResponse, Scheduler
from torchx.schedulers.ids import random_id
from torchx.specs.api import Resource, is_terminal
from torchx.testing._contract.jobs import WORKER, ContractParts, Jobs

STRIKES = ("SIGINT", "SIGTERM", "SIGKILL", "exception")
"""What happens to a launcher; the last is raised in its main thread by another one."""
AT_ONCE = 4
"""Launchers that are struck side by side."""
_PATIENCE_S = 5.0
"""How long a launcher that was struck may take to end before it is killed."""
_LAUNCH_S = 60.0
"""How long a launch may take."""

COMPONENT = """\
import json
import torchx.specs as specs

def job(spec: str) -> specs.AppDef:
    told = json.loads(spec)
    role = specs.Role(told["role"], told["image"], entrypoint="sleep", args=[told["marker"]],
                      num_replicas=2, resource=specs.Resource(**told["resource"]))
    return specs.AppDef(told["name"], [role])
"""

LIBRARY = """\
import ctypes, json, sys, threading, time
from job import job
from torchx.runner import get_runner

class Struck(BaseException):
    pass

told = json.loads(sys.argv[1])
me = threading.get_ident()

def strike():
    begun.wait()
    time.sleep(told["exception_after_s"])
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(Struck))

begun = threading.Event()
if told["exception_after_s"] is not None:
    threading.Thread(target=strike, daemon=True).start()
with get_runner() as runner:
    app = job(sys.argv[1])
    print("begun", flush=True)
    begun.set()
    handle = runner.run(app, told["scheduler"], told["cfg"])
    print(handle, flush=True)
    if told["stays"]:
        runner.wait(handle, wait_interval=0.5)
    begun.clear()
    begun.wait(told["exception_after_s"] or 0)
"""


@dataclass(frozen=True)
class Way:
    """A way to launch: by command line or library, attached or detached."""

    command_line: bool
    stays: bool


WAYS = tuple(Way(command_line, stays) for command_line in (False, True) for stays in (False, True))


@dataclass(frozen=True)
class Trial:
    """One interrupted launch.

    Args:
        name: that of its app, which no other has.
        marker: seconds that its replicas sleep, by which their processes are known.
    """

    way: Way
    name: str
    marker: str


class InterruptionContract(ContractParts):
    """A launcher that is interrupted or killed, at any instant of its launch.

    A test class defines the fixture ``scheduler_name`` for it; without, its rows are skipped.
    """

    trials: int = 4
    """How many launches are struck by each kind of interruption."""

    def can_run(self, native: str) -> bool:
        """Returns True if a native object may run anything; others may remain after a kill."""
        return True

    @pytest.fixture
    def scheduler_name(self) -> str:
        """The name by which other processes find the scheduler."""
        pytest.skip("the tests of this scheduler define no fixture `scheduler_name`")

    @pytest.mark.timeout(1800)  # the trials may be many
    @pytest.mark.parametrize("strike", STRIKES)
    def test_an_interrupted_launch_leaves_nothing_or_an_app_that_can_be_reached(
        self,
        scheduler: Scheduler[Any],
        scheduler_name: str,
        opts: dict[str, CfgVal],
        jobs: Jobs,
        image: str,
        resource: Resource,
        native_objects: "Callable[[], Collection[str]]",
        tmp_path: Path,
        strike: str,
    ) -> None:
        jobs.need("list")
        (tmp_path / "job.py").write_text(COMPONENT)
        has_detach = any(name == "detach" for name, _ in scheduler.run_opts())
        launchers = Launchers(tmp_path, scheduler_name, opts, has_detach, image, resource)
        before = {*native_objects()}
        done = launchers.strike_all(strike, self.trials)
        if has_detach:  # an app that is attached to its launcher ends with that one
            bound = [trial.marker for trial in done if trial.way.stays]
            jobs.until(lambda: not processes_of(bound))
        names = [trial.name for trial in done]
        markers = [trial.marker for trial in done]
        reached: set[str] = set()

        def new_objects() -> set[str]:
            return {name for name in {*native_objects()} - before if self.can_run(name)}

        def nothing_left() -> bool:
            rows = reach(scheduler, names)
            reached.update(row.app_id for row in rows)
            return not rows and not processes_of(markers) and not new_objects()

        try:
            jobs.until(nothing_left)
        except AssertionError:
            rows = [(row.app_id, row.state.name) for row in rows_of(scheduler, names)]
            left = (new_objects(), processes_of(markers), rows)
            msg = f"{len(reached)} apps were reached; what is left: {left}"
            raise AssertionError(msg) from None

    def test_commands_that_watch_outlive_an_outage_and_say_so_once(
        self,
        scheduler_name: str,
        jobs: Jobs,
        backend_away: "Callable[[], AbstractContextManager[object]]",
        tmp_path: Path,
    ) -> None:
        jobs.need("logs", "tail")
        # a command takes seconds to start on a busy machine: where the job has ended by then, the
        # outage says nothing, and another job stays longer
        for stays_s in (5, 20, 80):
            app_id = jobs.start(jobs.sh(f"echo one; sleep {stays_s}; echo two"))
            handle = f"{scheduler_name}://contract/{app_id}"
            with ExitStack() as running:
                status, log = (
                    running.enter_context(Watcher(tmp_path / f"{command[0]}{stays_s}", command))
                    for command in (["status", "--wait", handle], ["log", "-t", handle])
                )
                self.see_an_outage(jobs, status, log, backend_away)
                codes = [status.end(self.timeout_s + stays_s), log.end(self.timeout_s)]
            told = [watcher.err().count("trying again") for watcher in (status, log)]
            if told[0]:
                break
        assert codes == [0, 0], status.err() + log.err()
        assert "SUCCEEDED" in status.out()
        assert log.out() == f"{WORKER}/0 one\n{WORKER}/0 two\n"
        assert told in ([1, 0], [1, 1])

    def see_an_outage(
        self,
        jobs: Jobs,
        status: "Watcher",
        log: "Watcher",
        backend_away: "Callable[[], AbstractContextManager[object]]",
    ) -> None:
        """Lets the backend be away until that is noticed, or the app had ended before."""

        def said(words: str) -> bool:
            return words in status.err() or "SUCCEEDED" in status.out()

        jobs.until(lambda: said("RUNNING"))
        jobs.until(lambda: "one\n" in log.out())
        with backend_away():
            jobs.until(lambda: said("trying again"))


class Watcher:
    """A command in its own process, whose output can be read while it runs."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        folder.mkdir()
        self._folder = folder
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "torchx.cli.main", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(),
            )

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def out(self) -> str:
        """Its standard output so far."""
        return (self._folder / "out").read_text()

    def err(self) -> str:
        """Its standard error so far."""
        return (self._folder / "err").read_text()

    def end(self, timeout_s: float) -> int:
        """Waits for its end; returns its exit code."""
        return self._process.wait(timeout_s)


def environment() -> dict[str, str]:
    """Returns the environment of this process, with all its import paths."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def rows_of(scheduler: Scheduler[Any], names: Collection[str]) -> list[ListAppResponse]:
    """Returns the scheduler's rows of the apps with these names."""
    return [row for row in scheduler.list() if any(n in row.app_id + row.name for n in names)]


def reach(scheduler: Scheduler[Any], names: Collection[str]) -> list[ListAppResponse]:
    """Cancels or deletes every app of these names that is listed; gives those there were."""
    rows = rows_of(scheduler, names)
    for row in rows:
        if is_terminal(row.state):
            scheduler.delete(row.app_id)
        else:
            scheduler.cancel(row.app_id)
    if scheduler.features.delete_forgets:
        return rows
    return [row for row in rows if not is_terminal(row.state)]


def processes_of(markers: Collection[str]) -> list[int]:
    """Processes of this machine whose last argument is one of the markers."""
    known = {marker.encode() for marker in markers}
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if known.intersection(words[-2:]) and words[0].endswith(b"sleep"):
                found.append(int(entry))
    return found


class Launchers:
    """Starts launchers in processes of their own, and strikes them while they launch.

    Args:
        folder: holds the component.
        scheduler: the name to launch on, with these options.
        has_detach: whether an app ends with its launcher unless it has the option ``detach``.
    """

    def __init__(
        self,
        folder: Path,
        scheduler: str,
        opts: Mapping[str, CfgVal],
        has_detach: bool,
        image: str,
        resource: Resource,
    ) -> None:
        self._folder = folder
        self._scheduler = scheduler
        self._opts = dict(opts)
        self._has_detach = has_detach
        self._app = {
            "role": WORKER,
            "image": image,
            "resource": {"cpu": resource.cpu, "gpu": resource.gpu, "memMB": resource.memMB},
        }
        self._durations: dict[Way, list[float]] = {}
        self._lock = threading.Lock()
        self._random = random.Random()

    def strike_all(self, strike: str, count: int) -> list[Trial]:
        """Launches so many apps in all ways, each struck at a random instant."""
        measured = [self._trial(way, None) for way in WAYS]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ways = [WAYS[i % len(WAYS)] for i in range(count)]
            struck = [*pool.map(lambda way: self._trial(way, strike), ways)]
        return measured + struck

    def _trial(self, way: Way, strike: str | None) -> Trial:
        """Launches one app; without a strike the launcher is told to end after its launch."""
        if strike == "exception":
            way = Way(command_line=False, stays=way.stays)
        name = f"struck{random_id(8)}"
        marker = f"9{self._random.randrange(10**8, 10**9)}"
        # side by side each of them takes up to so many times as long
        slower = self._random.choice((1.3, 1.3 * AT_ONCE))
        longest_s = slower * statistics.median(self._durations.get(way, [_LAUNCH_S]))
        after_s = None if strike is None else self._random.uniform(0, longest_s)
        thrown_s = after_s if strike == "exception" else None
        process = self._start(way, {"name": name, "marker": marker}, thrown_s)
        try:
            if after_s is None:
                self._measure(way, process)
                process.terminate()
            elif strike == "exception":
                wait_for_end(process, after_s)
            else:
                self._strike(way, process, after_s, signal.Signals[strike or "SIGTERM"])
            wait_for_end(process, _PATIENCE_S)
        finally:
            process.kill()
            process.communicate()
        return Trial(way, name, marker)

    def _start(
        self, way: Way, app: Mapping[str, str], thrown_s: float | None
    ) -> "subprocess.Popen[str]":
        cfg = dict(self._opts)
        if self._has_detach:
            cfg["detach"] = not way.stays
        told = {
            **self._app,
            **app,
            "scheduler": self._scheduler,
            "cfg": cfg,
            "stays": way.stays,
            "exception_after_s": thrown_s,
        }
        if way.command_line:
            given = ",".join(f"{key}={_spelled(value)}" for key, value in cfg.items())
            command = ["-m", "torchx.cli.main", "run", "-s", self._scheduler]
            command += ["-cfg", given] if given else []
            command += ["--wait"] if way.stays else ["--detach"]
            command += ["--workspace", "", f"{self._folder}/job.py:job"]
            command += ["--spec", json.dumps(told)]
        else:
            command = ["-c", LIBRARY, json.dumps(told)]
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
            start_new_session=True,
        )

    def _measure(self, way: Way, process: "subprocess.Popen[str]") -> None:
        """Waits for the end of the launch, and notes how long it took."""
        assert process.stdout is not None
        began = time.monotonic()
        line = process.stdout.readline()
        if line == "begun\n":
            began = time.monotonic()
            line = process.stdout.readline()
        assert "://" in line, f"a launch that nobody interrupts must work, it printed {line!r}"
        with self._lock:
            self._durations.setdefault(way, []).append(time.monotonic() - began)

    def _strike(
        self, way: Way, process: "subprocess.Popen[str]", after_s: float, number: int
    ) -> None:
        if not way.command_line:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
        wait_for_end(process, after_s)
        process.send_signal(number)


def wait_for_end(process: "subprocess.Popen[str]", timeout_s: float) -> None:
    """Returns when the process has ended, at the latest after the time."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return


def _spelled(value: CfgVal) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)
