"""Runs one local job: executes its plan until all its processes are gone."""

import os
import time

from . import journal, plan, tree
from .format import dumps, event
from .listeners import Listeners, Poller
from .logs import Pumps
from .processes import Processes, StartFailure

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Supervisor:
    """Runs one job to its end; ``run`` returns when all its processes are gone."""

    def __init__(self, spec: "dict[str, Any]", lifeline_fd: int) -> None:
        self._spec = spec
        self._lifeline_fd = lifeline_fd
        self._journal = journal.Journal(str(spec["job_dir"]))
        self._plan = plan.Plan(spec)
        self._poller = Poller()
        self._pumps = Pumps(self._poller)
        self._processes = Processes(spec, self._pumps)
        self._listeners = Listeners(self._poller, self._stop)

    def start(self) -> None:
        """Starts every replica, or none.

        Raises:
            StartFailure: with a message for the user.
        """
        self._listeners.watch_signals()
        me, guard = os.getpid(), os.getppid()
        ids = (me, tree.start_ticks(me), guard, tree.start_ticks(guard))
        where = (str(self._spec["host"]), tree.boot_id())
        self._journal.add(event("supervised", time.time_ns(), *where, *ids))
        self._journal.flush()
        self._listeners.open(self._spec, self._lifeline_fd)
        problem = self._start(self._plan.replicas)
        if problem:
            raise StartFailure(problem)
        self._journal.add(event("state", time.time_ns(), "RUNNING", ""))
        self._journal.flush()

    def run(self) -> None:
        """Pumps and reaps until the job has ended and its record is complete."""
        while True:
            exits = self._processes.reap()
            if exits:
                self._act(self._plan.exited(exits, _now()))
            if self._pumps.problem:
                self._act(self._plan.end("FAILED", self._pumps.problem, _now()))
            self._act(self._plan.advance(_now(), self._processes.left))
            if self._plan.over:
                break
            self._tell()
            for fd in self._poller.wait(self._plan.timeout_s(_now())):
                if fd in self._pumps:
                    self._pumps.pump(fd)
                else:
                    self._listeners.handle(fd)
        self._finish()

    def _act(self, actions: "plan.Actions") -> None:
        for action in actions:
            if isinstance(action, plan.Note):
                self._journal.add(action.line)
            elif isinstance(action, plan.Signal):
                self._processes.signal(action.number, action.replicas)
            else:
                problem = self._restart(action.replicas)
                if problem:
                    self._act(self._plan.could_not_start(problem, _now()))

    def _restart(self, replicas: "Sequence[plan.Replica]") -> str:
        for replica in replicas:
            self._processes.close_log(replica)
        return self._start(replicas)

    def _start(self, replicas: "Sequence[plan.Replica]") -> str:
        """Starts an attempt of each; returns the error, empty if there is none."""
        try:
            forked, problem = self._processes.start(replicas)
        except OSError as err:
            return str(err)
        self._plan.started(forked, _now())
        now = time.time_ns()
        for r in forked:
            place = f"{r.role.index}, {r.index}, {r.attempt}"
            self._journal.add(f'["start", {now}, {place}, {r.pid}, {r.ticks}]\n')
        return problem

    def _stop(self, state: str, message: str) -> None:
        """Requests the end of the job; it is guaranteed once this returns."""
        self._act(self._plan.end(state, message, _now()))
        self._journal.flush()

    def _tell(self) -> None:
        """Wakes followers, after the files are written."""
        events = self._journal.flush()
        if events or self._pumps.moved:
            self._pumps.moved = False
            self._listeners.tell(events)

    def _finish(self) -> None:
        exits = self._processes.reap()
        self._act(self._plan.exited(exits, _now()))
        for replica in self._plan.replicas:
            self._processes.close_log(replica)
        state, message = self._plan.outcome
        if self._pumps.problem and state != "CANCELLED":
            state, message = "FAILED", message or self._pumps.problem
        spec, ended = self._spec, time.time_ns()
        journal.free_reserve(str(spec["job_dir"]))
        journal.write_success(spec, self._plan.roles, (state, ended))
        self._journal.add(f'["state", {ended}, "{state}", {dumps(message)}]\n')
        self._journal.flush()
        fields = (str(spec["app_id"]), str(spec["session"]), str(spec["name"]))
        try:
            journal.finish(str(spec["home"]), fields, state, (int(spec["created_ns"]), ended))
        except OSError as err:  # the next reader does it
            journal.complain(f"cannot write the index: {err}\n")
        self._listeners.close()


def _now() -> plan.Now:
    return plan.Now(time.monotonic(), time.time_ns())
