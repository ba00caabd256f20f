"""Decides about one local job: events in, actions out. Starts nothing and reads no clock."""

from . import format as record

TYPE_CHECKING = False  # `typing` takes 6 ms, a third of the start of a supervisor
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

LINGER_S = 1.0
"""Seconds for which background processes of replicas may run once all replicas are done."""
KILL_WAIT_S = 5.0
"""Seconds to wait for killed processes before giving up."""
STOP_TICK_S = 0.02
"""Seconds between checks of the processes that are being stopped."""
SETTLE_S = 1.0
"""Seconds that the others may run after a final failure: one of them may be its cause, and end a
little later by itself.
"""
FIRST_PAUSE_S = 0.5
"""Seconds before a second consecutive retry; doubled for each further one. The first has none."""
LONGEST_PAUSE_S = 60.0
LONG_RUN_S = 60.0
"""After an attempt that ran this many seconds, the pauses start again."""
SIGKILL, SIGTERM = 9, 15


class Now:
    """A moment, by the monotonic clock and by the wall clock."""

    __slots__ = ("ns", "s")

    def __init__(self, s: float, ns: int) -> None:
        self.s = s
        self.ns = ns


class Budget:
    """The number of used retries, and the pause before the next one."""

    __slots__ = ("quick", "used")

    def __init__(self) -> None:
        self.used = 0
        self.quick = 0
        """Consecutive attempts that failed early."""

    def take(self, ran_s: float) -> float:
        """Uses one retry; returns the pause before it.

        Args:
            ran_s: seconds that the failed attempt ran.
        """
        self.used += 1
        self.quick = 0 if ran_s >= LONG_RUN_S else self.quick + 1
        if self.quick < 2:
            return 0.0
        return float(min(FIRST_PAUSE_S * 2 ** min(self.quick - 2, 20), LONGEST_PAUSE_S))


class Replica:
    """A replica: what to run, and the current attempt."""

    __slots__ = (
        "args",
        "attempt",
        "budget",
        "code",
        "cwd",
        "dir",
        "env",
        "index",
        "pid",
        "restarting",
        "role",
        "running",
        "started_s",
        "stopped",
        "ticks",
    )  # fmt: skip

    def __init__(self, role: "Role", index: int, directory: str) -> None:
        self.role = role
        self.index = index
        self.dir = directory
        self.args: list[str] = []
        self.env: dict[str, str] = {}
        self.cwd: str | None = None
        self.attempt = -1
        self.pid = 0
        """Process id of the latest attempt's leader, which is also its session id."""
        self.ticks = 0
        """When that process started, in clock ticks since boot."""
        self.budget = Budget()
        self.running = False
        self.restarting = False
        self.stopped = False
        """True if it was told to end while it ran."""
        self.started_s = 0.0
        self.code: int | None = None

    @property
    def name(self) -> str:
        """The role and index."""
        return f"{self.role.name}/{self.index}"

    @property
    def attempt_dir(self) -> str:
        """The folder of this attempt's logs."""
        return record.attempt_dir(self.dir, self.attempt)


class Role:
    """A role as described by the launcher."""

    __slots__ = ("budget", "index", "max_retries", "name", "policy", "replicas")

    def __init__(self, index: int, spec: "dict[str, Any]") -> None:
        self.index = index
        self.name = str(spec["name"])
        self.max_retries = int(spec["max_retries"])
        self.policy = str(spec["policy"])
        self.budget = Budget()
        self.replicas: list[Replica] = []
        base_args, base_env = spec["args"], spec["env"]
        vary = spec["vary"]
        for k, directory in enumerate(spec["dirs"]):
            replica = Replica(self, k, directory)
            args, env, gone, cwd = vary.get(k, (None, {}, (), None))
            replica.args = args or base_args
            replica.env = {**base_env, **env} if env else base_env
            if gone:
                replica.env = {n: v for n, v in replica.env.items() if n not in gone}
            replica.cwd = cwd or spec["cwd"]
            self.replicas.append(replica)


class Note:
    """Action: write a line to the journal."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line


class Signal:
    """Action: signal all descendants of these replicas; of all replicas for ``None``."""

    __slots__ = ("number", "replicas")

    def __init__(self, number: int, replicas: "Sequence[Replica] | None") -> None:
        self.number = number
        self.replicas = replicas


class Start:
    """Action: start the next attempt of these replicas."""

    __slots__ = ("replicas",)

    def __init__(self, replicas: "Sequence[Replica]") -> None:
        self.replicas = replicas


if TYPE_CHECKING:
    Actions = list[Note | Signal | Start]
    Left = Callable[[Sequence[Replica] | None], bool]


class Stop:
    """Processes that were told to end, and will be killed after the grace period."""

    __slots__ = ("grace_s", "kill_since", "since")

    def __init__(self, since: float, grace_s: float) -> None:
        self.since = since
        self.grace_s = grace_s
        self.kill_since: float | None = None

    def advance(self, now: "Now", replicas: "Sequence[Replica] | None") -> "Actions":
        """Kills repeatedly, once the grace period is over."""
        if self.kill_since is None:
            if now.s - self.since < self.grace_s:
                return []
            self.kill_since = now.s
        return [Signal(SIGKILL, replicas)]

    def given_up(self, now: "Now") -> bool:
        """Returns True if they cannot be killed, for example because they wait for a dead disk."""
        return self.kill_since is not None and now.s - self.kill_since > KILL_WAIT_S


class Restart:
    """Replicas that are stopped together, and restarted together after a pause."""

    __slots__ = ("due", "replicas", "stop", "stopped")

    def __init__(self, replicas: "list[Replica]", due: float, stop: "Stop") -> None:
        self.replicas = replicas
        self.due = due
        self.stop = stop
        self.stopped = False


class Ending:
    """The end of the whole job: its final state, and the reason.

    Args:
        due: when those that still run are told to end.
    """

    __slots__ = ("due", "message", "state", "stop")

    def __init__(self, state: str, message: str, due: float) -> None:
        self.state = state
        self.message = message
        self.due = due
        self.stop: Stop | None = None


class Plan:
    """The replicas of one job and the next actions; ``over`` if there are none.

    Args:
        spec: the job as the launcher described it.
    """

    def __init__(self, spec: "dict[str, Any]") -> None:
        self.roles = [Role(i, role) for i, role in enumerate(spec["roles"])]
        self.replicas = [replica for role in self.roles for replica in role.replicas]
        self.over = False
        self.ending: Ending | None = None
        self._ends_on_failure = bool(spec["ends_on_failure"])
        self._grace_s = float(spec["grace_s"])
        self._budget = Budget()
        self._restarts: list[Restart] = []
        self._linger_since: float | None = None

    # -- events -----------------------------------------------------------------------------

    def started(self, replicas: "Sequence[Replica]", now: Now) -> None:
        """Records that an attempt of each of them is running."""
        for replica in replicas:
            replica.running, replica.stopped, replica.restarting = True, False, False
            replica.code, replica.started_s = None, now.s

    def exited(self, exits: "Sequence[tuple[Replica, int]]", now: Now) -> "Actions":
        """Records that these replicas have ended, with these exit codes."""
        actions: Actions = []
        for replica, code in exits:
            replica.running, replica.code = False, code
            place = f"{replica.role.index}, {replica.index}, {replica.attempt}"
            line = f'["exit", {now.ns}, {place}, {code}, {int(replica.stopped)}]\n'
            actions.append(Note(line))
        for replica, code in exits:
            if code and self.ending is None and not replica.restarting:
                actions += self._failed(replica, now)
        return actions

    def end(self, state: str, message: str, now: Now) -> "Actions":
        """Ends the whole job with that state, unless it is already ending."""
        actions: Actions = []
        if self.ending is None:
            actions += self._begin_end(state, message, now, now.s)
        assert self.ending is not None
        return actions + self._tell(self.ending, now)

    def could_not_start(self, problem: str, now: Now) -> "Actions":
        """Records that a restart failed."""
        return self.end("FAILED", f"a restart failed: {problem}", now)

    def advance(self, now: Now, left: "Left") -> "Actions":
        """Returns the due actions; called after each event, and after ``timeout_s``.

        Args:
            left: returns True if any process of these replicas is alive, of the job for ``None``.
        """
        if self.ending is not None:
            return self._advance_end(self.ending, now, left)
        actions: Actions = []
        for restart in [*self._restarts]:
            actions += self._advance_restart(restart, now, left)
        if self._restarts or actions or any(r.running for r in self.replicas):
            return actions
        return self._linger(now, left)

    # -- what follows from them -------------------------------------------------------------

    @property
    def outcome(self) -> "tuple[str, str]":
        """Returns the job's final state, and a message if its replicas do not show the reason."""
        if self.ending is not None:
            return self.ending.state, self.ending.message
        return ("FAILED" if any(r.code for r in self.replicas) else "SUCCEEDED"), ""

    def timeout_s(self, now: Now) -> "float | None":
        """Returns the seconds until ``advance`` must be called; ``None`` if after an event."""
        if self.ending is not None and self.ending.stop is None:
            return max(self.ending.due - now.s, 0.0)
        if self.ending is not None or self._linger_since is not None:
            return STOP_TICK_S
        if any(not restart.stopped for restart in self._restarts):
            return STOP_TICK_S
        if self._restarts:
            return max(min(restart.due for restart in self._restarts) - now.s, 0.0)
        return None

    def _failed(self, replica: Replica, now: Now) -> "Actions":
        budget, scope = self._scope(replica)
        if budget.used < replica.role.max_retries:
            return self._restart(replica, scope, budget, now)
        if not self._ends_on_failure:
            return []
        if self._restarts or any(other.running for other in self.replicas):
            return self._begin_end("FAILED", "", now, now.s + SETTLE_S)
        return []

    def _begin_end(self, state: str, message: str, now: Now, due: float) -> "Actions":
        self.ending = Ending(state, message, due)
        self._restarts.clear()
        return [Note(record.event("ending", now.ns, state, message))]

    def _tell(self, ending: Ending, now: Now) -> "Actions":
        """Tells all running replicas to end, once."""
        if ending.stop is not None:
            return []
        ending.stop = Stop(now.s, self._grace_s)
        for replica in self.replicas:
            replica.stopped = replica.running
        return [Signal(SIGTERM, None)]

    def _scope(self, replica: Replica) -> "tuple[Budget, list[Replica]]":
        """Returns the retry budget of the replica, and the replicas restarted with it."""
        if replica.role.policy == "REPLICA":
            return replica.budget, [replica]
        if replica.role.policy == "ROLE":
            return replica.role.budget, replica.role.replicas
        return self._budget, self.replicas

    def _restart(
        self, failed: Replica, scope: "list[Replica]", budget: Budget, now: Now
    ) -> "Actions":
        pause_s = budget.take(now.s - failed.started_s)
        role = failed.role
        fields = (role.policy, role.index, failed.index, budget.used, round(pause_s * 1000))
        new = [replica for replica in scope if not replica.restarting]
        due = now.s + pause_s
        if len(new) < len(scope):  # some of them are being restarted already: now all together
            for other in [*self._restarts]:
                if any(replica in scope for replica in other.replicas):
                    self._restarts.remove(other)
                    due = max(due, other.due)
        for replica in new:
            replica.restarting, replica.stopped = True, replica.running
        self._restarts.append(Restart(scope, due, Stop(now.s, self._grace_s)))
        return [Note(record.event("restart", now.ns, *fields)), Signal(SIGTERM, new)]

    def _advance_restart(self, restart: Restart, now: Now, left: "Left") -> "Actions":
        if not restart.stopped:
            running = any(replica.running for replica in restart.replicas)
            if (running or left(restart.replicas)) and not restart.stop.given_up(now):
                return restart.stop.advance(now, restart.replicas)
            restart.stopped = True
        if now.s < restart.due:
            return []
        self._restarts.remove(restart)
        return [Start(restart.replicas)]

    def _advance_end(self, ending: Ending, now: Now, left: "Left") -> "Actions":
        running = any(replica.running for replica in self.replicas)
        given_up = ending.stop is not None and ending.stop.given_up(now)
        if given_up or not (running or left(None)):
            self.over = True
            return []
        if ending.stop is not None:
            return ending.stop.advance(now, None)
        return [] if running and now.s < ending.due else self._tell(ending, now)

    def _linger(self, now: Now, left: "Left") -> "Actions":
        """Ends leftover processes after all replicas are done: after a moment, in the usual way."""
        if not left(None):
            self.over = True
            return []
        if self._linger_since is None:
            self._linger_since = now.s
        if now.s - self._linger_since < LINGER_S:
            return []
        return self.end(*self.outcome, now)
