"""Tests of states, exit codes and first failures, the same on all schedulers."""

import json
import re
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from torchx.runner import Runner
from torchx.schedulers.api import AppDef, Scheduler
from torchx.specs.api import AppState, AppStatus, is_terminal, macros
from torchx.testing._contract.jobs import APP, ContractParts, Jobs

FAILS_BESIDE_ONE_THAT_RUNS = f"[ {macros.replica_id} = 0 ] && exec sleep 3600; exit 3"
RAISES = """
def step():
    raise ValueError("loss is NaN")

step()
"""
RANKS = r"""
import sys

sys.exit('''
[0]:[rank2]: Traceback (most recent call last):
[0]:[rank2]:   File "/app/train.py", line 44, in <module>
[0]:[rank2]:     dist.barrier()
[1]:[rank3]: Traceback (most recent call last):
[0]:[rank2]: RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1
[1]:[rank3]:   File "/app/train.py", line 41, in step
[1]:[rank3]:     rate = config["lr"]
[1]:[rank3]:   File "/venv/lib/python3.11/site-packages/config.py", line 7, in __getitem__
[1]:[rank3]:     return self.values[name]
[1]:[rank3]: KeyError: 'lr'
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/app/train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2030-01-01_00:00:01
  rank      : 2 (local_rank: 0)
  exitcode  : 1 (pid: 8)
  traceback : To enable traceback see: its documentation
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2030-01-01_00:00:00
  host      : node
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 9)
  error_file: <N/A>
  traceback : To enable traceback see: its documentation
============================================================''')
"""
NOTICES_THE_END_OF_ANOTHER = """
import sys, time

if sys.argv[1] == "0":
    sys.stderr.write('''Traceback (most recent call last):
  File "/app/train.py", line 41, in step
ValueError: loss is NaN
''')
    sys.stderr.flush()
    time.sleep(3600)  # as the agent of a node that ends after others
time.sleep(4)
raise RuntimeError("Connection closed by peer")
"""
KILLS_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


class StateContract(ContractParts):
    """The states of an app by those of its replicas, and the words for their ends."""

    native_states: Sequence[tuple[Any, AppState]] = ()
    """Native records (or native words) with the state that each means; at least one that the
    backend does not have today, which means ``UNKNOWN``."""

    def state_of(self, native: Any) -> AppState:
        """State that the scheduler takes one of ``native_states`` for."""
        msg = f"`{type(self).__name__}` must define `state_of` for its `native_states`"
        raise NotImplementedError(msg)

    def test_every_native_state_has_a_meaning_and_an_unknown_one_is_unknown(self) -> None:
        if not self.native_states:
            pytest.skip("the tests of this scheduler define no `native_states`")
        assert AppState.UNKNOWN in [state for _, state in self.native_states]
        found = [(native, self.state_of(native)) for native, _ in self.native_states]
        assert found == [*self.native_states]

    def test_a_replica_that_fails_for_good_ends_the_others(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        self.need_option(scheduler, "on_failure")
        app_id = jobs.start(jobs.sh(FAILS_BESIDE_ONE_THAT_RUNS, num_replicas=2))
        status = watch(scheduler, app_id)
        assert status.state is AppState.FAILED
        assert "worker/1 exited with code 3" in status.msg
        if scheduler.features.replica_statuses:
            states = [replica.state for replica in status.roles[0].replicas]
            assert states == [AppState.CANCELLED, AppState.FAILED]
        assert [(f.role, f.replica, f.exit_code) for f in jobs.failed(app_id)] == [("worker", 1, 3)]

    @pytest.mark.parametrize("roles", [1, 2])
    def test_a_launch_that_nobody_watches_ends_the_others_or_is_known_to_need_someone(
        self, scheduler: Scheduler[Any], jobs: Jobs, roles: int
    ) -> None:
        """It is what ``torchx run --detach`` says."""
        self.need_option(scheduler, "on_failure")
        app = jobs.sh(FAILS_BESIDE_ONE_THAT_RUNS, num_replicas=2)
        if roles == 2:
            jobs.need("multi_role")
            stays = jobs.role("sleep", "3600", name="stays")
            app = AppDef(APP, [stays, jobs.role("sh", "-c", "exit 3", name="fails")])
        app_id = jobs.start(app)
        if not scheduler.needs_watcher(app_id):
            assert jobs.end(app_id).state is AppState.FAILED
            return
        assert not scheduler.features.ends_on_failure
        jobs.until(lambda: jobs.failed(app_id))
        assert not is_terminal(jobs.describe(app_id).state)
        assert watch(scheduler, app_id).state is AppState.FAILED

    def test_the_others_go_on_if_the_option_says_so(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        self.need_option(scheduler, "on_failure")
        script = f"[ {macros.replica_id} = 1 ] && exit 3; sleep 2; echo done"
        app_id = jobs.start(jobs.sh(script, num_replicas=2), on_failure="wait")
        status = watch(scheduler, app_id)
        assert status.state is AppState.FAILED
        if scheduler.features.replica_statuses:
            states = [replica.state for replica in status.roles[0].replicas]
            assert states == [AppState.SUCCEEDED, AppState.FAILED]
        if scheduler.features.logs:
            assert jobs.lines(app_id) == ["done\n"]

    def test_the_option_on_failure_is_checked(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        self.need_option(scheduler, "on_failure")
        with pytest.raises(ValueError, match=r"on_failure.*nonsense"):
            jobs.start(jobs.sh("true"), on_failure="nonsense")

    def test_a_signal_is_a_negative_exit_code(self, jobs: Jobs) -> None:
        jobs.need("exit_codes")
        app_id = jobs.run(jobs.python(KILLS_ITSELF))
        (failed,) = jobs.failed(app_id)
        assert failed.exit_code == -9
        assert failed.reason.startswith("killed by SIGKILL")
        found = jobs.describe(app_id)
        assert "worker/0 killed by SIGKILL" in found.msg
        assert json.loads(found.structured_error_msg)["errorCode"] == -9

    def test_exit_codes_have_one_wording(self, jobs: Jobs) -> None:
        jobs.need("exit_codes")
        app_id = jobs.run(jobs.sh("exit 3"))
        (failed,) = jobs.failed(app_id)
        assert failed.reason == "exited with code 3"
        assert "replica worker/0 exited with code 3" in jobs.describe(app_id).msg

    def test_an_exception_is_the_error_of_the_app(self, jobs: Jobs) -> None:
        jobs.need("logs", "exit_codes")
        app_id = jobs.run(jobs.python(RAISES))
        error = jobs.describe(app_id).structured_error_msg
        message = json.loads(error)["message"]
        assert message["message"] == "ValueError: loss is NaN"
        callstack = message["extraInfo"]["py_callstack"]
        assert re.search(r"line 3, in step", callstack)

    def test_the_exception_is_told_with_its_place(self, jobs: Jobs) -> None:
        jobs.need("logs", "exit_codes")
        app_id = jobs.run(jobs.python(RAISES))
        told = "ValueError: loss is NaN (<string>:3 in step)"
        assert f"worker/0 exited with code 1: {told}" in jobs.describe(app_id).msg
        (failed,) = jobs.failed(app_id)
        assert (failed.reason, failed.error) == ("exited with code 1", told)
        assert failed.last_lines[-1] == "ValueError: loss is NaN"

    def test_the_rank_that_failed_first_is_told(self, jobs: Jobs) -> None:
        """As torchrun prints it: a rank whose peer has gone comes first, its summary last."""
        jobs.need("logs", "exit_codes")
        app_id = jobs.run(jobs.python(RANKS))
        told = "rank 3: KeyError: 'lr' (/app/train.py:41 in step)"
        assert told in jobs.describe(app_id).msg
        message = json.loads(jobs.describe(app_id).structured_error_msg)["message"]
        assert message["message"] == "KeyError: 'lr'"
        assert message["extraInfo"]["rank"] == 3
        (failed,) = jobs.failed(app_id)
        assert failed.error == told
        assert failed.last_lines[-1] == "KeyError: 'lr'"

    def test_what_another_replica_has_raised_is_told_by_those_that_notice(
        self, scheduler: Scheduler[Any], jobs: Jobs, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Unless what a replica printed goes with it, as the backend ends it."""
        jobs.need("logs", "exit_codes", "replica_statuses")
        self.need_option(scheduler, "on_failure")
        app = jobs.python(NOTICES_THE_END_OF_ANOTHER, macros.replica_id, num_replicas=2)
        app_id = jobs.start(app)
        found = watch(scheduler, app_id)
        assert found.state is AppState.FAILED
        told = "worker/0: ValueError: loss is NaN (/app/train.py:41 in step)"
        said = f"{found.msg}\n{caplog.text}"
        kept = any("loss is NaN" in line for line in jobs.lines(app_id))
        assert f"replica worker/1 exited with code 1: {told}" in said or not kept

    def test_the_first_failure_is_the_one_that_ended_first(self, jobs: Jobs) -> None:
        jobs.need("exit_codes", "multi_role")
        # the consequence comes second, in the role that stands first
        roles = [
            jobs.role("sh", "-c", "sleep 4; exit 4", name="a"),
            jobs.role("sh", "-c", "exit 3", name="b"),
        ]
        more = {"on_failure": "wait"} if self.has_option(jobs.scheduler, "on_failure") else {}
        app_id = jobs.start(AppDef(APP, roles), **more)
        assert "b/0 exited with code 3" in jobs.end(app_id).msg
        assert jobs.failed(app_id)[0].role == "b"

    def test_a_failure_in_a_cancelled_app_is_no_failure(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        app_id = jobs.start(jobs.sh("trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done"))
        if scheduler.features.logs:
            jobs.until(lambda: jobs.lines(app_id))
        scheduler.cancel(app_id)
        assert jobs.end(app_id).state is AppState.CANCELLED
        assert jobs.failed(app_id) == []

    def has_option(self, scheduler: Scheduler[Any], name: str) -> bool:
        """Returns True if the scheduler has that option."""
        return any(option == name for option, _ in scheduler.run_opts())

    def need_option(self, scheduler: Scheduler[Any], name: str) -> None:
        """Skips the test where the scheduler lacks an option."""
        if not self.has_option(scheduler, name):
            pytest.skip(f"the scheduler has no option `{name}`")


def watch(scheduler: Scheduler[Any], app_id: str) -> AppStatus:
    """Waits for the end of an app as ``torchx run`` does."""
    status = runner_of(scheduler).wait(f"contract://contract/{app_id}", wait_interval=0.2)
    assert status is not None, f"`{app_id}` is unknown to the scheduler that started it"
    return status


def runner_of(scheduler: Scheduler[Any]) -> Runner:
    """A runner that has this scheduler only."""
    return Runner("contract", {"contract": lambda session_name, **_: scheduler})


class Watching:
    """Watches an app in a thread, as somebody in another terminal would."""

    def __init__(self, scheduler: Scheduler[Any], app_id: str) -> None:
        self.status: AppStatus | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(scheduler, app_id), daemon=True)
        self._thread.start()

    def _run(self, scheduler: Scheduler[Any], app_id: str) -> None:
        try:
            self.status = watch(scheduler, app_id)
        except BaseException as err:  # noqa: BLE001 - it is raised in the test's thread
            self.failure = err

    def result(self, timeout_s: float) -> AppStatus:
        """The last status; raises what the wait raised."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"still waiting after {timeout_s} s"
        if self.failure is not None:
            raise self.failure
        assert self.status is not None
        return self.status
