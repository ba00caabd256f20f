"""What NeMo-Run relies on beyond names."""

import logging
import time
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from torchx.cli.cmd_log import _prefix_line, find_role_replicas, validate
from torchx.runner import get_runner
from torchx.runner.api import Runner
from torchx.runner.events import log_event
from torchx.schedulers.api import DescribeAppResponse, Scheduler, Stream
from torchx.schedulers.local_scheduler import LocalOpts, LogIterator, Opts, _LocalAppDef
from torchx.specs import AppDef, AppDryRunInfo, AppState, AppStatus, Resource, Role, macros

from .nemo_like import (
    Executor,
    ExperimentRunner,
    PersistentLocalScheduler,
    RemoteScheduler,
    create_persistent_local,
)


def app_of(*command: str, **role) -> AppDef:
    program, *args = command
    return AppDef("job", [Role("w", "img", entrypoint=program, args=args, **role)])


@pytest.fixture
def runner():
    runner = ExperimentRunner(
        "experiment",
        {"local_persistent": create_persistent_local, "remote": RemoteScheduler},
        scheduler_params={"experiment": "the experiment"},
    )
    yield runner
    runner.close()


@pytest.fixture
def executor(tmp_path):
    (tmp_path / "job").mkdir()
    return Executor(job_dir=str(tmp_path / "job"), env_vars={"FROM_EXECUTOR": "yes"})


def test_a_whole_local_experiment(runner, executor):
    app = app_of("sh", "-c", "echo hi $FROM_EXECUTOR; echo err >&2", num_replicas=2)
    info = runner.dryrun(app, "local_persistent", executor)
    assert is_dataclass(info.request)
    assert "FROM_EXECUTOR" in str(info)
    handle = runner.run(app, "local_persistent", executor, dryrun_info=info)
    assert handle.startswith("local_persistent://experiment/job-")
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert runner.status(handle).state is AppState.SUCCEEDED
    lines = runner.log_lines(handle, "w", 1, should_tail=True, streams=Stream.STDOUT)
    assert list(lines) == ["hi yes\n"]
    (row,) = runner.list("local_persistent")
    assert row.app_handle == handle


def test_the_experiment_is_a_parameter_of_every_factory():
    seen = []

    def factory(session_name, **kwargs):
        seen.append(kwargs["experiment"])
        return RemoteScheduler(session_name)

    runner = Runner("s", {"remote": factory}, scheduler_params={"experiment": "e"})
    assert runner._scheduler("remote").backend == "remote"
    assert seen == ["e"]
    with get_runner(experiment="other") as runner:
        assert runner._scheduler("local_cwd").backend == "local"


def test_cancelling_kills_through_the_app_record(runner, executor):
    handle = runner.run(app_of("sleep", "300"), "local_persistent", executor)
    runner.cancel(handle)
    assert runner.wait(handle, wait_interval=0.1).state is AppState.CANCELLED


def test_logs_are_where_the_client_looks_for_them(runner, executor):
    handle = runner.run(app_of("echo", "hi"), "local_persistent", executor)
    runner.wait(handle, wait_interval=0.1)
    app_id = handle.rpartition("/")[2]
    app = runner._scheduler("local_persistent")._apps[app_id]
    assert app.log_dir == f"{executor.job_dir}/experiment/{app_id}"
    for name, text in {"stdout": "hi\n", "stderr": "", "combined": "hi\n"}.items():
        assert Path(app.log_dir, "w", "0", f"{name}.log").read_text() == text


def test_deleting_a_job_keeps_the_clients_files(runner, executor):
    handle = runner.run(app_of("echo", "hi"), "local_persistent", executor)
    runner.wait(handle, wait_interval=0.1)
    runner.delete(handle)
    (log,) = Path(executor.job_dir).glob("experiment/*/w/0/stdout.log")
    assert log.read_text() == "hi\n"


def test_an_app_record_is_rebuilt_from_a_file(runner, executor):
    handle = runner.run(app_of("true"), "local_persistent", executor)
    runner.wait(handle, wait_interval=0.1)
    (path,) = Path(executor.job_dir).glob("*.pickle")
    app = PersistentLocalScheduler.load(path)
    assert app.id == handle.rpartition("/")[2]
    assert app.state in AppState
    app.set_state(AppState.FAILED)
    assert app.state is AppState.FAILED
    app.kill()


def test_an_app_record_of_an_unknown_job_can_be_killed(tmp_path):
    app = _LocalAppDef(id="x", log_dir=str(tmp_path))
    assert (app.state, app.role_replicas) == (AppState.PENDING, {})
    app.kill()


def test_closing_a_scheduler_that_skipped_its_parents_constructor():
    class Bare(PersistentLocalScheduler):
        def __init__(self):
            pass

        close = PersistentLocalScheduler.__mro__[2].close

    scheduler = Bare()
    scheduler.close()
    scheduler.__del__()


def test_a_request_is_made_from_a_plain_and_partial_mapping(tmp_path):
    scheduler = create_persistent_local("s", experiment=None)
    app = app_of("echo", macros.replica_id, num_replicas=2)
    request = scheduler._to_popen_request(app, {"log_dir": str(tmp_path)})
    assert request.log_dir == f"{tmp_path}/s/{request.app_id}"
    assert [param.args for param in request.role_params["w"]] == [["echo", "0"], ["echo", "1"]]
    assert request.role_log_dirs["w"][1] == f"{request.log_dir}/w/1"
    assert scheduler._to_popen_request(app, {}).log_dir


def test_a_remote_scheduler_goes_through_its_states(runner, executor):
    handle = runner.run(app_of("x"), "remote", executor)
    assert handle == "remote://experiment/job___1"
    assert runner.wait(handle, wait_interval=0.01).state is AppState.SUCCEEDED
    assert [row.app_handle for row in runner.list("remote")] == [handle]


def test_a_log_iterator_learns_its_file_while_it_waits(runner, executor):
    runner.run(app_of("x"), "remote", executor)
    lines = runner._scheduler("remote").log_iter("job___1", "w")
    assert list(lines) == ["first\n", "more at check 3\n", "more at check 4\n"]


def test_a_log_iterator_follows_a_file_until_its_app_ends(tmp_path):
    class Growing(LogIterator):
        def _check_finished(self):
            with open(self._log_file, "a") as file:
                file.write("par")
                file.flush()
                file.write("t\n")
            super()._check_finished()

    class Describer:
        def __init__(self):
            self.looks = 0

        def describe(self, app_id):
            self.looks += 1
            state = AppState.RUNNING if self.looks < 3 else AppState.FAILED
            return DescribeAppResponse(app_id=app_id, state=state)

    describer = Describer()
    lines = list(Growing("app", str(tmp_path / "log"), describer))
    assert lines == ["part\n"] * 3
    assert describer.looks == 3


def test_a_log_iterator_without_a_file_says_which_one(tmp_path):
    path = tmp_path / "none.log"
    with pytest.raises(RuntimeError, match=r"none\.log"):
        list(LogIterator("app", str(path), None, should_tail=False))


def test_a_two_argument_validate_is_called_with_two_arguments():
    calls = []

    class TwoArguments(RemoteScheduler):
        submit_dryrun = Scheduler.submit_dryrun

        def _validate(self, app, scheduler):
            calls.append(scheduler)

    runner = Runner("s", {"two": lambda session_name, **kwargs: TwoArguments(session_name)})
    app = app_of("x", resource=Resource(1, 0, 1))
    runner.dryrun(app, "two", {})
    assert calls == ["two"]


def test_the_base_validate_takes_two_or_three_arguments():
    scheduler = RemoteScheduler("s")
    app = app_of("x")
    for args in ((app, "remote"), (app, "remote", {})):
        with pytest.raises(ValueError, match="w"):
            Scheduler._validate(scheduler, *args)


def test_a_dryrun_has_one_app_and_one_cfg_under_two_spellings():
    info = AppDryRunInfo("request", repr)
    app, cfg = AppDef("a"), Executor("d")
    info._app, info._cfg = app, cfg
    assert info.app is app
    assert info.cfg is cfg
    info.app, info.cfg = None, {}
    assert info._app is None
    assert info._cfg == {}
    info._scheduler = "s"
    info._fmt = str.upper
    assert str(info) == "REQUEST"


def test_options_have_both_names():
    assert LocalOpts is Opts


def test_events_are_filled_in_by_the_caller():
    with log_event("dryrun", "local", app_image="i") as context:
        event = context._torchx_event
        event.scheduler, event.app_image, event.app_id = "s", "j", "a"
        assert (event.scheduler, event.app_image, event.app_id) == ("s", "j", "a")
    with log_event(api="run", workspace="/w") as context:
        assert context._torchx_event.workspace == "/w"


def test_a_status_needs_only_its_state():
    assert AppStatus(state=AppState["RUNNING"]).state is AppState.RUNNING


def test_macros_are_replaced_in_a_copy_of_the_role():
    values = macros.Values(img_root="/i", app_id="a", replica_id="1", rank0_env="R0")
    role = Role("w", "", args=[macros.app_id, macros.img_root], env={"K": macros.replica_id})
    done = values.apply(role)
    assert (done.args, done.env) == (["a", "/i"], {"K": "1"})
    assert role.args == [macros.app_id, macros.img_root]
    assert values.substitute(f"{macros.rank0_env} $other") == "R0 $other"


def test_log_prefixes_keep_carriage_returns():
    assert _prefix_line("P ", "a\rb") == "P a\rP b"
    assert _prefix_line("P ", "\rx") == "\rP x"


def test_a_malformed_handle_ends_the_process():
    with pytest.raises(SystemExit):
        validate("no handle")
    validate("local_cwd://s/app/w/0")


def test_replicas_of_a_role_are_found():
    app = AppDef("a", [Role("x", "", num_replicas=2), Role("y", "")])
    assert find_role_replicas(app, None) == [("x", 0), ("x", 1), ("y", 0)]
    assert find_role_replicas(app, "y") == [("y", 0)]


def test_the_package_logs_below_one_logger(runner, executor, caplog):
    logging.getLogger("torchx").setLevel(logging.ERROR)
    try:
        handle = runner.run(app_of("true"), "local_persistent", executor)
        runner.wait(handle, wait_interval=0.1)
        below = [r for r in caplog.records if r.name.startswith("torchx.")]
        assert [r for r in below if r.levelno < logging.ERROR] == []
    finally:
        logging.getLogger("torchx").setLevel(logging.NOTSET)


def test_waiting_does_not_take_the_poll_interval(runner, executor):
    handle = runner.run(app_of("true"), "local_persistent", executor)
    started = time.monotonic()
    runner.wait(handle, wait_interval=60)
    assert time.monotonic() - started < 30
