"""What a runner asks schedulers, how it waits, and how it makes and closes them."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runner.fakes import FakeScheduler, FullScheduler, an_app, runner_of
from torchx._outages import Outage
from torchx.errors import BackendUnavailable, UnsupportedRequest
from torchx.runner import Runner, get_runner
from torchx.runner.api import get_configured_trackers
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx.specs import AppState, MalformedAppHandleException, UnknownAppException

UNKNOWN_HANDLE = "fake://session/nothing"


def test_status_says_what_the_scheduler_says() -> None:
    runner, _ = runner_of()
    status = runner.status(runner.run(an_app(), "fake"))
    assert status is not None
    assert (status.state, status.num_restarts, status.msg) == (AppState.SUCCEEDED, 2, "fine")


def test_an_app_that_is_gone_is_forgotten() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    scheduler.apps.clear()
    assert runner.status(handle) is None
    assert handle not in runner._apps


def test_unknown_apps_are_no_error() -> None:
    runner, scheduler = runner_of()
    assert runner.status(UNKNOWN_HANDLE) is None
    assert runner.wait(UNKNOWN_HANDLE) is None
    assert runner.describe(UNKNOWN_HANDLE) is None
    assert runner.describe_native(UNKNOWN_HANDLE) is None
    runner.cancel(UNKNOWN_HANDLE)
    runner.delete(UNKNOWN_HANDLE)
    assert set(scheduler.calls) == {"describe"}


@pytest.mark.parametrize("query", ["status", "wait", "cancel", "delete", "describe", "log_lines"])
def test_a_malformed_handle_is_refused(query: str) -> None:
    runner, _ = runner_of()
    arguments = ("worker",) if query == "log_lines" else ()
    with pytest.raises(MalformedAppHandleException):
        getattr(runner, query)("nonsense", *arguments)


def test_handles_of_other_sessions_work() -> None:
    runner, _ = runner_of()
    handle = runner.run(an_app(), "fake")
    assert runner.status(handle.replace("session", "other")) is not None


def test_describe_gives_the_submitted_app_or_what_the_scheduler_knows() -> None:
    runner, _ = runner_of()
    handle = runner.run(an_app(), "fake")
    app = runner.describe(handle)
    assert app is not None
    assert app.name == "app"
    assert app is runner._apps[handle]
    foreign = runner.describe(handle.replace("session", "other"))
    assert foreign is not None
    assert (foreign.name, foreign.roles) == ("app-0", app.roles)


def test_describe_does_not_answer_for_an_app_that_is_gone() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    scheduler.apps.clear()
    assert runner.describe(handle) is None


def test_describe_answers_for_a_submitted_app_when_the_backend_is_down() -> None:
    class Down(FakeScheduler):
        def describe(self, app_id: str) -> DescribeAppResponse | None:
            raise BackendUnavailable("down")

    runner, _ = runner_of(Down)
    handle = runner.run(an_app(), "fake")
    app = runner.describe(handle)
    assert app is not None
    assert app.name == "app"
    with pytest.raises(BackendUnavailable):
        runner.describe(UNKNOWN_HANDLE)


def test_the_native_request_knows_its_scheduler() -> None:
    class Native(FakeScheduler):
        def describe_native(self, app_id: str) -> Any:
            return self._submit_dryrun(self.apps[app_id], {})

    runner, _ = runner_of(Native)
    info = runner.describe_native(runner.run(an_app(), "fake"))
    assert info is not None
    assert info._scheduler == "fake"


def test_only_a_live_app_is_cancelled() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    runner.cancel(handle)
    assert "cancel app-0" not in scheduler.calls
    scheduler.states = [AppState.RUNNING]
    runner.cancel(handle)
    assert "cancel app-0" in scheduler.calls
    scheduler.calls.clear()
    runner.cancel(handle)
    assert "cancel app-0" not in scheduler.calls


def test_stop_is_a_deprecated_cancel() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    scheduler.states = [AppState.RUNNING]
    with pytest.warns(PendingDeprecationWarning, match="please use `cancel` instead"):
        runner.stop(handle)
    assert "cancel app-0" in scheduler.calls


def test_a_finished_app_can_be_deleted() -> None:
    runner, scheduler = runner_of()
    runner.delete(runner.run(an_app(), "fake"))
    assert "delete app-0" in scheduler.calls


def test_waiting_ends_with_the_app_and_logs_each_state_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "torchx.runner.api")
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    running = AppState.RUNNING
    scheduler.states = [AppState.PENDING, running, running, AppState.FAILED]
    status = runner.wait(handle, wait_interval=0.01)
    assert status is not None
    assert status.state is AppState.FAILED
    assert scheduler.waits == [0.01] * 3
    records = [r.getMessage() for r in caplog.records if r.name == "torchx.runner.api"]
    assert records == [f"`{handle}` is PENDING: fine", f"`{handle}` is RUNNING: fine"]


def test_waiting_sleeps_where_a_scheduler_has_no_hook() -> None:
    class StandIn:
        looks = 0

        def describe(self, app_id: str) -> DescribeAppResponse:
            self.looks += 1
            state = AppState.RUNNING if self.looks < 3 else AppState.SUCCEEDED
            return DescribeAppResponse(app_id, state)

    stand_in: Any = StandIn()
    runner = Runner("s", {})
    runner._scheduler_instances["x"] = stand_in
    start = time.monotonic()
    status = runner.wait("x://s/1", wait_interval=0.05)
    assert status is not None
    assert status.is_terminal()
    assert time.monotonic() - start >= 0.1


def test_a_hook_that_returns_at_once_does_not_keep_the_processor_busy() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    scheduler.states = [AppState.RUNNING] * 6 + [AppState.SUCCEEDED]
    start = time.monotonic()
    runner.wait(handle, wait_interval=0.05)
    # no pause after a change, then 10, 20, 40, 50, 50 ms
    assert time.monotonic() - start >= 0.17


def test_the_default_hook_waits_for_its_time() -> None:
    class Polling(FakeScheduler):
        wait_for_change = Scheduler.wait_for_change

    runner, scheduler = runner_of(Polling)
    handle = runner.run(an_app(), "fake")
    scheduler.states = [AppState.RUNNING, AppState.RUNNING, AppState.SUCCEEDED]
    start = time.monotonic()
    runner.wait(handle, wait_interval=0.05)
    assert time.monotonic() - start >= 0.1


def test_waiting_puts_up_with_a_backend_that_is_away_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Flaky(FakeScheduler):
        misses = 3

        def describe(self, app_id: str) -> DescribeAppResponse | None:
            if self.misses:
                self.misses -= 1
                raise BackendUnavailable("no route")
            return super().describe(app_id)

    runner, _ = runner_of(Flaky)
    handle = runner.run(an_app(), "fake")
    status = runner.wait(handle, wait_interval=0)
    assert status is not None
    assert caplog.text.count("cannot be reached") == 1
    assert caplog.text.count("answers again") == 1


def test_an_outage_that_lasts_too_long_is_an_error() -> None:
    outage = Outage("fake", longest_s=0.01)
    outage.note(BackendUnavailable("no route"))
    time.sleep(0.02)
    with pytest.raises(BackendUnavailable, match="no route"):
        outage.note(BackendUnavailable("no route"))


def test_log_lines_come_from_the_scheduler() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    lines = runner.log_lines(handle, "worker", 1, "x", should_tail=True, streams=Stream.STDERR)
    assert lines == ["a line\n"]
    assert scheduler.calls[-1] == (
        "log_iter ('app-0', 'worker', 1, 'x', None, None, True) "
        "{'streams': <Stream.STDERR: 'stderr'>}"
    )


@pytest.mark.parametrize("query", ["log_lines", "log_blocks", "verify_logs"])
def test_logs_of_an_unknown_app_are_refused_at_the_call(query: str) -> None:
    runner, _ = runner_of(FullScheduler)
    arguments = ("worker",) if query == "log_lines" else ()
    with pytest.raises(UnknownAppException, match="Unknown app = fake://session/nothing"):
        getattr(runner, query)(UNKNOWN_HANDLE, *arguments)


def test_optional_queries_reach_the_scheduler() -> None:
    runner, scheduler = runner_of(FullScheduler)
    handle = runner.run(an_app(), "fake")
    blocks = runner.log_blocks(handle, [("worker", 0)], should_tail=True)
    assert [b.text for b in blocks] == ["x\n"]
    assert scheduler.calls[-1] == "log_blocks [('worker', 0)] True"
    assert runner.failed_replicas(handle, 2)[0].last_lines == ["boom\n"] * 2
    assert runner.verify_logs(handle)[0].complete


def test_optional_queries_are_refused_where_a_scheduler_lacks_them() -> None:
    runner, _ = runner_of()
    handle = runner.run(an_app(), "fake")
    with pytest.raises(UnsupportedRequest, match="FakeScheduler"):
        runner.log_blocks(handle)
    with pytest.raises(UnsupportedRequest, match="FakeScheduler"):
        runner.verify_logs(handle)
    assert list(runner.failed_replicas(handle)) == []


def test_optional_queries_tolerate_a_stand_in() -> None:
    class StandIn:
        def describe(self, app_id: str) -> DescribeAppResponse:
            return DescribeAppResponse(app_id)

    stand_in: Any = StandIn()
    runner = Runner("s", {})
    runner._scheduler_instances["x"] = stand_in
    with pytest.raises(UnsupportedRequest, match="scheduler `x` does not support `log_blocks`"):
        runner.log_blocks("x://s/1")
    with pytest.raises(UnsupportedRequest, match="`verify_logs`"):
        runner.verify_logs("x://s/1")
    assert list(runner.failed_replicas("x://s/1")) == []


def test_list_fills_in_handles() -> None:
    runner, scheduler = runner_of()
    handle = runner.run(an_app(), "fake")
    (row,) = runner.list("fake", {"queue": "q"})
    assert (row.app_handle, row.app_id, row.name) == (handle, "app-0", "app")
    assert scheduler.calls[-1] == "list {'queue': 'q'}"
    runner.list("fake")
    assert scheduler.calls[-1] == "list None"


def test_a_scheduler_that_lists_without_options_works() -> None:
    """As those of NeMo-Run, written for release 0.7, do."""

    class Old(FakeScheduler):
        def list(self) -> list[ListAppResponse]:  # type: ignore[override]  # as old
            return [ListAppResponse("1", AppState.RUNNING)]

    runner, _ = runner_of(Old)
    assert runner.list("fake")[0].app_handle == "fake://session/1"


def test_options_are_read_from_text_the_later_winning() -> None:
    runner, _ = runner_of()
    cfg = runner.cfg_from_str("fake", "queue=a,tags=x,y", "queue=b")
    assert cfg == {"queue": "b", "tags": ["x", "y"]}
    assert runner.cfg_from_str("fake", "") == {}
    assert runner.cfg_from_str("fake") == {}
    assert [key for key, _ in runner.scheduler_run_opts("fake")] == ["queue", "tags"]


def test_schedulers_are_made_once_with_the_session_and_the_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def make(session_name: str, **kwargs: object) -> FakeScheduler:
        made.append((session_name, kwargs))
        return FakeScheduler(session_name)

    monkeypatch.setenv("TORCHX_FOO_BAR", "z")
    monkeypatch.setenv("torchx_lower", "y")
    monkeypatch.setenv("TORCHX_TRACKERS", "t")
    monkeypatch.setenv("TORCHX_TRACKER_T_CONFIG", "c")
    runner = Runner("s", {"a": make, "b": make}, scheduler_params={"foo_bar": 1, "client": 2})
    monkeypatch.setenv("TORCHX_LATE", "1")
    assert made == []
    runner.scheduler_run_opts("a")
    runner.scheduler_run_opts("a")
    assert made == [("s", {"foo_bar": 1, "lower": "y", "client": 2})]
    assert runner.scheduler_backends() == ["a", "b"]


def test_a_factory_that_fails_is_tried_again() -> None:
    failures = [OSError("not yet")]

    def make(session_name: str, **kwargs: object) -> FakeScheduler:
        if failures:
            raise failures.pop()
        return FakeScheduler(session_name)

    runner = Runner("s", {"fake": make})
    with pytest.raises(OSError, match="not yet"):
        runner.scheduler_run_opts("fake")
    assert len(runner.scheduler_run_opts("fake")) == 2


def test_closing_closes_the_schedulers_that_were_made() -> None:
    with Runner("s", {"used": FakeScheduler, "unused": FakeScheduler}) as runner:
        scheduler: Any = runner._scheduler("used")
    assert scheduler.calls == ["close"]
    assert list(runner._scheduler_instances) == ["used"]
    runner.close()
    assert scheduler.calls == ["close", "close"]


def test_one_scheduler_that_does_not_close_does_not_keep_others_open() -> None:
    class Stuck(FakeScheduler):
        def close(self) -> None:
            raise OSError("stuck")

    runner = Runner("s", {"stuck": Stuck, "fine": FakeScheduler})
    runner._scheduler("stuck")
    fine: Any = runner._scheduler("fine")
    with pytest.raises(OSError, match="stuck"):
        runner.close()
    assert fine.calls == ["close"]


def test_an_exception_is_not_swallowed_by_the_runner() -> None:
    with pytest.raises(KeyError), Runner("s", {}):
        raise KeyError


def test_a_runner_finds_schedulers_only_if_it_is_given_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("api", "_session"):
        name = f"torchx.runner.{module}.get_scheduler_factories"
        monkeypatch.setattr(name, lambda: {"f": FakeScheduler})
    assert Runner("s", {}).scheduler_backends() == []
    assert Runner("s").scheduler_backends() == ["f"]
    runner = get_runner(component_defaults={"c": {"a": "1"}}, experiment="e")
    assert runner.scheduler_backends() == ["f"]
    assert runner.name() == "torchx"
    scheduler: Any = runner._scheduler("f")
    assert scheduler.params == {"experiment": "e"}
    assert scheduler.session_name == "torchx"
    assert repr(runner) == f"Runner(name=torchx, schedulers={{'f': {FakeScheduler}}}, apps={{}})"


def test_a_session_name_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="session names are deprecated"):
        assert get_runner("mine").name() == "mine"


def test_trackers_come_from_files_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\nfoo =\nbar =\n[tracker:foo]\nconfig = s3://x\n"
    )
    assert get_configured_trackers() == {"foo": "s3://x", "bar": None}
    monkeypatch.setenv("TORCHX_TRACKERS", "foo,baz")
    monkeypatch.setenv("TORCHX_TRACKER_BAZ_CONFIG", "zz")
    assert get_configured_trackers() == {"foo": "s3://x", "baz": "zz"}
    monkeypatch.setenv("TORCHX_TRACKERS", "")
    assert get_configured_trackers() == {}
