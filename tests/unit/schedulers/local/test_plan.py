"""What becomes of a local job, decided without a process or a clock: events in, actions out."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from torchx.schedulers.local_scheduler._supervise.plan import (
    FIRST_PAUSE_S,
    KILL_WAIT_S,
    LINGER_S,
    LONG_RUN_S,
    LONGEST_PAUSE_S,
    SETTLE_S,
    STOP_TICK_S,
    Note,
    Now,
    Plan,
    Replica,
    Signal,
    Start,
)

GRACE_S = 10.0


class Driver:
    """Carries out a plan on processes that exist in this test only."""

    def __init__(self, ends_on_failure: bool = True, **roles: dict[str, Any]) -> None:
        specs = [
            {
                "name": name,
                "args": ["x"],
                "env": {},
                "cwd": "/",
                "dirs": [f"/{name}/{k}" for k in range(role.get("replicas", 1))],
                "max_retries": role.get("max_retries", 0),
                "policy": role.get("policy", "REPLICA"),
                "vary": {},
            }
            for name, role in roles.items()
        ]
        spec = {"roles": specs, "ends_on_failure": ends_on_failure, "grace_s": GRACE_S}
        self.plan = Plan(spec)
        self.s = 100.0
        self.living: set[str] = set()
        """Names of the replicas of which a process lives."""
        self.notes: list[list[Any]] = []
        self.signals: list[tuple[int, list[str] | None]] = []
        self.starts: list[list[str]] = []
        self._start(self.plan.replicas)

    def _start(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            replica.attempt += 1
            self.living.add(replica.name)
        self.plan.started(replicas, self.now)

    @property
    def now(self) -> Now:
        return Now(self.s, int(self.s * 1e9))

    def replica(self, name: str) -> Replica:
        return next(r for r in self.plan.replicas if r.name == name)

    def exit(self, **codes: int) -> None:
        """Replicas end at one time, given as ``w_0=3``; then the plan goes on."""
        names = {key.replace("_", "/"): code for key, code in codes.items()}
        self.living -= set(names)
        exits = [(self.replica(name), code) for name, code in names.items()]
        self.carry_out(self.plan.exited(exits, self.now))
        self.go_on()

    def end(self, state: str = "CANCELLED", message: str = "") -> None:
        self.carry_out(self.plan.end(state, message, self.now))
        self.go_on()

    def go_on(self, seconds: float = 0.0) -> None:
        """Lets time pass and asks the plan what is to be done."""
        self.s += seconds
        self.carry_out(self.plan.advance(self.now, self._left))

    def _left(self, replicas: Sequence[Replica] | None) -> bool:
        names = self.living if replicas is None else {r.name for r in replicas}
        return bool(self.living & names)

    def carry_out(self, actions: Sequence[Note | Signal | Start]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self.notes.append(json.loads(action.line))
            elif isinstance(action, Signal):
                names = None if action.replicas is None else [r.name for r in action.replicas]
                self.signals.append((action.number, names))
            else:
                self.starts.append([r.name for r in action.replicas])
                self._start(action.replicas)

    def noted(self, kind: str) -> list[list[Any]]:
        """The fields after the time of all events of one kind."""
        return [note[2:] for note in self.notes if note[0] == kind]


def test_a_job_ends_with_its_last_replica() -> None:
    job = Driver(w={"replicas": 2})
    job.exit(w_0=0)
    assert not job.plan.over
    assert job.plan.timeout_s(job.now) is None
    job.exit(w_1=0)
    assert job.plan.over
    assert job.plan.outcome == ("SUCCEEDED", "")
    assert job.noted("exit") == [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert job.signals == []


def test_a_failure_for_good_ends_the_others() -> None:
    job = Driver(a={"replicas": 2}, b={})
    job.exit(a_1=3)
    assert job.noted("ending") == [["FAILED", ""]]
    assert job.plan.timeout_s(job.now) == SETTLE_S
    job.go_on(SETTLE_S)
    assert job.signals == [(15, None)]
    assert not job.plan.over
    job.exit(a_0=-15, b_0=0)
    assert job.plan.over
    assert job.plan.outcome == ("FAILED", "")
    assert job.noted("exit") == [[0, 1, 0, 3, 0], [0, 0, 0, -15, 1], [1, 0, 0, 0, 1]]


def test_what_ends_by_itself_just_after_a_failure_was_not_told_to() -> None:
    job = Driver(w={"replicas": 3})
    job.exit(w_0=3)
    job.go_on(SETTLE_S / 2)
    job.exit(w_1=4)
    assert job.signals == []
    job.go_on(SETTLE_S / 2)
    job.exit(w_2=-15)
    assert job.noted("exit") == [[0, 0, 0, 3, 0], [0, 1, 0, 4, 0], [0, 2, 0, -15, 1]]
    assert job.plan.over


def test_nobody_waits_once_all_have_ended() -> None:
    job = Driver(w={"replicas": 2})
    job.exit(w_0=3)
    job.exit(w_1=0)
    assert job.plan.over
    assert job.plan.outcome == ("FAILED", "")
    assert job.signals == []


def test_a_user_who_cancels_does_not_wait_for_that_moment() -> None:
    job = Driver(w={"replicas": 2})
    job.exit(w_0=3)
    job.end("CANCELLED")
    assert job.signals == [(15, None)]
    assert job.noted("ending") == [["FAILED", ""]]
    assert job.plan.outcome[0] == "FAILED"


def test_the_others_go_on_if_that_is_wanted() -> None:
    job = Driver(ends_on_failure=False, w={"replicas": 2})
    job.exit(w_0=3)
    assert (job.signals, job.plan.ending) == ([], None)
    job.exit(w_1=0)
    assert job.plan.over
    assert job.plan.outcome == ("FAILED", "")


def test_the_only_replica_that_runs_ends_nothing_by_its_failure() -> None:
    job = Driver(w={"replicas": 2})
    job.exit(w_0=0)
    job.exit(w_1=1)
    assert job.plan.over
    assert (job.signals, job.plan.outcome[0]) == ([], "FAILED")


def test_what_does_not_end_is_killed_after_the_grace_period() -> None:
    job = Driver(w={})
    job.end()
    assert job.plan.timeout_s(job.now) == STOP_TICK_S
    job.go_on(GRACE_S - 0.1)
    assert job.signals == [(15, None)]
    job.go_on(0.1)
    assert job.signals == [(15, None), (9, None)]
    job.go_on(STOP_TICK_S)
    assert job.signals[-1] == (9, None)
    job.exit(w_0=-9)
    assert job.plan.over
    assert job.plan.outcome == ("CANCELLED", "")


def test_what_cannot_be_killed_is_given_up_on() -> None:
    job = Driver(w={})
    job.end("FAILED", "because")
    job.go_on(GRACE_S)
    job.go_on(KILL_WAIT_S + 0.1)
    assert job.plan.over
    assert job.plan.outcome == ("FAILED", "because")


def test_what_replicas_left_behind_gets_a_moment() -> None:
    job = Driver(w={})
    job.living.add("left behind")
    job.exit(w_0=0)
    assert not job.plan.over
    assert job.plan.timeout_s(job.now) == STOP_TICK_S
    job.go_on(LINGER_S)
    assert job.signals == [(15, None)]
    job.living.clear()
    job.go_on()
    assert job.plan.over
    assert job.plan.outcome == ("SUCCEEDED", "")


@pytest.mark.parametrize(
    ("policy", "told_to_end", "restarted"),
    [
        ("REPLICA", ["a/1"], ["a/1"]),
        ("ROLE", ["a/0", "a/1"], ["a/0", "a/1"]),
        ("APPLICATION", ["a/0", "a/1", "b/0"], ["a/0", "a/1", "b/0"]),
    ],
)
def test_each_policy_restarts_its_scope_once_all_of_it_has_ended(
    policy: str, told_to_end: list[str], restarted: list[str]
) -> None:
    job = Driver(a={"replicas": 2, "max_retries": 1, "policy": policy}, b={})
    job.exit(a_1=3)
    assert job.signals == [(15, told_to_end)]
    assert job.noted("restart") == [[policy, 0, 1, 1, 0]]
    for name in restarted:
        if name != "a/1":
            assert job.starts == []
            job.exit(**{name.replace("/", "_"): -15})
    assert job.starts == [restarted]
    assert job.plan.timeout_s(job.now) is None


def test_a_restart_waits_for_what_the_replica_left_and_kills_it() -> None:
    job = Driver(w={"max_retries": 1})
    job.living.add("w/0")
    job.plan.exited([(job.replica("w/0"), 3)], job.now)
    job.go_on()
    assert job.starts == []
    assert job.plan.timeout_s(job.now) == STOP_TICK_S
    job.go_on(GRACE_S)
    assert job.signals == [(9, ["w/0"])]
    job.living.clear()
    job.go_on()
    assert job.starts == [["w/0"]]


def test_retries_that_are_used_up_fail_the_app() -> None:
    job = Driver(w={"replicas": 2, "max_retries": 1})
    job.exit(w_0=3)
    assert job.starts == [["w/0"]]
    job.exit(w_0=4)
    job.go_on(SETTLE_S)
    assert job.signals[-1] == (15, None)
    assert job.plan.outcome[0] == "FAILED"


def test_retries_of_other_replicas_do_not_count() -> None:
    job = Driver(w={"replicas": 2, "max_retries": 1})
    job.exit(w_0=3)
    job.exit(w_1=3)
    assert job.starts == [["w/0"], ["w/1"]]
    assert job.plan.ending is None


def test_what_fails_at_once_again_and_again_is_retried_ever_later() -> None:
    job = Driver(w={"max_retries": 1000})
    pauses = []
    for _ in range(12):
        job.exit(w_0=1)
        pause_s = job.plan.timeout_s(job.now) or 0.0
        pauses.append(pause_s)
        job.go_on(pause_s)
    assert pauses[:4] == [0, FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert len(job.starts) == 12
    assert [fields[-1] for fields in job.noted("restart")] == [round(1000 * p) for p in pauses]


def test_an_attempt_that_ran_long_makes_the_pauses_begin_anew() -> None:
    job = Driver(w={"max_retries": 10})
    for _ in range(3):
        job.exit(w_0=1)
        job.go_on(job.plan.timeout_s(job.now) or 0.0)
    job.s += LONG_RUN_S
    job.exit(w_0=1)
    assert len(job.starts) == 4


def test_one_that_waits_for_its_retry_does_not_keep_others_waiting() -> None:
    job = Driver(w={"replicas": 2, "max_retries": 9})
    job.exit(w_0=1)
    job.exit(w_0=1)
    assert job.starts == [["w/0"]]
    job.exit(w_1=1)
    assert job.starts == [["w/0"], ["w/1"]]
    job.go_on(FIRST_PAUSE_S)
    assert job.starts == [["w/0"], ["w/1"], ["w/0"]]


def test_a_restart_of_all_takes_over_one_that_waits() -> None:
    job = Driver(
        a={"max_retries": 9, "policy": "REPLICA"}, b={"max_retries": 1, "policy": "APPLICATION"}
    )
    job.exit(a_0=1)
    job.exit(a_0=1)
    job.exit(b_0=1)
    assert job.starts == [["a/0"]]
    job.go_on(FIRST_PAUSE_S)
    assert job.starts == [["a/0"], ["a/0", "b/0"]]
    job.go_on(100)
    assert len(job.starts) == 2


def test_cancelling_ends_a_job_that_waits_for_a_retry() -> None:
    job = Driver(w={"max_retries": 9})
    job.exit(w_0=1)
    job.exit(w_0=1)
    job.end()
    assert job.plan.over
    assert job.plan.outcome == ("CANCELLED", "")


def test_a_restart_that_does_not_work_fails_the_job() -> None:
    job = Driver(w={"replicas": 2, "max_retries": 1})
    job.carry_out(job.plan.could_not_start("no such file", job.now))
    assert job.noted("ending") == [["FAILED", "a restart failed: no such file"]]


def test_each_of_many_replicas_is_retried_on_its_own() -> None:
    job = Driver(w={"replicas": 10_000, "max_retries": 1})
    job.exit(**{f"w_{k}": 1 for k in range(0, 10_000, 500)})
    assert len(job.starts) == 20
