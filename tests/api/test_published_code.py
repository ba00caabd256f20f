"""What programs written for the published packages do beyond importing names."""

import importlib.metadata
import io
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx import specs
from torchx.cli import cmd_log
from torchx.components.utils import echo, sh
from torchx.runner import Runner, config, get_runner
from torchx.schedulers.docker_scheduler import DockerScheduler
from torchx.schedulers.ids import get_len_random_id
from torchx.schedulers.local_scheduler import CWDImageProvider, LocalOpts, LocalScheduler
from torchx.schedulers.slurm_scheduler import SlurmOpts
from torchx.specs import AppState, RetryPolicy
from torchx.util.entrypoints import load_group
from torchx.util.io import read_conf_file

# -- overridden methods ------------------------------------------------------------------------


class OwnLogs(LocalScheduler):
    def log_iter(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        return iter(["mine\n"])


class Wrapper(Runner):
    """Leaves out ``Runner.__init__``, as a runner that hands everything on does."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner

    def status(self, app_handle: str) -> "specs.AppStatus | None":
        return self.inner.status(app_handle)

    def describe(self, app_handle: str) -> "specs.AppDef | None":
        return self.inner.describe(app_handle)

    def log_lines(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        return iter(["wrapped\n"])


def printed(runner: Runner, handle: str) -> list[str]:
    """What `torchx log` and the streaming of `torchx run` write."""
    logged, streamed = io.StringIO(), io.StringIO()
    cmd_log.get_logs(logged, handle, None, runner=runner)
    cmd_log.stream_logs(streamed, runner, handle)
    return [logged.getvalue(), streamed.getvalue()]


def test_log_iter_of_a_subclass_is_what_is_printed() -> None:
    def make(session_name: str, **_: object) -> OwnLogs:
        return OwnLogs(session_name, CWDImageProvider)

    with Runner("test", {"own": make}) as runner:
        handle = runner.run(echo(msg="real"), "own")
        runner.wait(handle, wait_interval=0.1)
        assert printed(runner, handle) == ["echo/0 mine\n"] * 2


def test_log_lines_of_a_runner_that_leaves_out_init_is_what_is_printed() -> None:
    with get_runner() as inner, Wrapper(inner) as runner:
        handle = inner.run(echo(msg="real"), "local_cwd")
        inner.wait(handle, wait_interval=0.1)
        assert printed(runner, handle) == ["echo/0 wrapped\n"] * 2
        with pytest.raises(specs.UnknownSchedulerException):
            runner.log_blocks(handle)  # it has no schedulers of its own


# -- options and arguments ---------------------------------------------------------------------


def test_options_are_taken_as_a_mapping() -> None:
    opts = LocalOpts({"log_dir": "/x", "detach": True})  # type: ignore[arg-type]  # as in 0.7
    assert (opts.log_dir, opts.detach, opts.prepend_cwd) == ("/x", True, False)
    slurm = SlurmOpts({"partition": "gpu", "mail-user": "me", "queue": 1})  # type: ignore[arg-type]  # as in 0.7
    assert (slurm.partition, slurm.mail_user, slurm["queue"]) == ("gpu", "me", 1)
    assert slurm.account is None


def test_options_of_a_type_that_is_no_global_are_read_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = '''
        from __future__ import annotations

        from dataclasses import dataclass

        from torchx.schedulers.api import StructuredOpts


        def make() -> type[StructuredOpts]:
            import decimal

            @dataclass
            class Opts(StructuredOpts):
                price: decimal.Decimal | None = None
                """What it may cost."""
                queue: str = "q"
                """Where it waits."""

            return Opts
    '''
    (tmp_path / "late_types.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    import late_types  # type: ignore[import-not-found]  # written above

    opts = late_types.make()
    assert dict(opts()) == {"price": None, "queue": "q"}
    assert opts.from_cfg({"queue": "x"}).queue == "x"
    with pytest.raises(NameError, match=r"decimal.*of option `price`.*import it at the top"):
        opts.as_runopts()


def test_keywords_of_the_published_functions(tmp_path: Path) -> None:
    file = tmp_path / "c.py"
    file.write_text("text")
    assert read_conf_file(conf_file=str(file)) == "text"
    assert specs.cases.snake_to_camel(name="a_b") == "aB"
    assert specs.cases.camel_to_snake(name="aB") == "a_b"


def test_ids_of_a_length() -> None:
    for length in (1, 8, 40):
        made = get_len_random_id(length)
        assert len(made) == length
        assert made[0].isalpha()
    assert get_len_random_id(40) != get_len_random_id(40)


def test_the_retry_policy_of_0_7_restarts_the_app() -> None:
    assert RetryPolicy.HOT_SPARE is RetryPolicy.APPLICATION
    assert [policy.name for policy in RetryPolicy] == ["REPLICA", "APPLICATION", "ROLE"]


# -- plugins and schedulers --------------------------------------------------------------------


def test_entry_points_of_other_groups_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Authors of plugins replace the lookup in their tests by one that gives all groups."""
    found = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, "json", group)
        for name, group in (("a", "g1"), ("b", "g2"))
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: found)
    assert [*load_group("g1")] == ["a"]


def test_a_docker_scheduler_made_without_init_makes_requests() -> None:
    scheduler = object.__new__(DockerScheduler)  # NeMo-Run's
    scheduler.backend, scheduler.session_name = "docker", "test"
    resource = specs.Resource(cpu=1, gpu=0, memMB=1)
    app = specs.AppDef("a", [specs.Role("w", "i", entrypoint="e", resource=resource)])
    info = scheduler.submit_dryrun(app, {})  # type: ignore[arg-type]  # a mapping is taken as well
    assert "image: i" in str(info)
    scheduler.push_images(info.request.images_to_push)


@pytest.mark.parametrize(
    ("name", "registered"), [("local", "local_cwd"), ("docker", "local_docker")]
)
def test_other_names_of_schedulers(
    name: str, registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHXCONFIG", str(tmp_path / "config"))
    option = "log_dir" if name == "local" else "copy_env"
    (tmp_path / "config").write_text(f"[{name}]\n{option} = /x\n")
    with get_runner() as runner:
        info = runner.dryrun(echo(image=""), name)
        assert info.app is not None
        job_id = info.app.roles[0].env["TORCHX_JOB_ID"]
        assert job_id.startswith(f"{registered}://")
        assert [*runner.scheduler_run_opts(name)] == [*runner.scheduler_run_opts(registered)]
    for asked in (name, registered):
        cfg: dict[str, Any] = {}
        config.apply(asked, cfg)
        assert option in cfg


def test_a_scheduler_that_a_plugin_registers_keeps_its_name() -> None:
    def make(session_name: str, **_: object) -> LocalScheduler:
        return LocalScheduler(session_name, CWDImageProvider)

    with Runner("test", {"local": make, "local_cwd": make}) as runner:
        handle = runner.run(echo(msg="x"), "local")
        assert handle.startswith("local://")
        runner.wait(handle, wait_interval=0.1)


def test_a_job_launched_by_one_name_is_found_by_the_other() -> None:
    with get_runner() as runner:
        handle = runner.run(echo(msg="x"), "local")
        assert handle.startswith("local_cwd://")
        other = handle.replace("local_cwd://", "local://")
        status = runner.wait(other, wait_interval=0.1)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [*runner.log_lines(other, "echo")] == ["x\n"]
        assert handle in [app.app_handle for app in runner.list("local")]


def test_a_look_right_after_a_cancel_finds_what_ended_at_once() -> None:
    """How fast a process ends is the machine's affair: one of several does so in time."""

    def state_after_cancel(runner: Runner) -> AppState:
        handle = runner.run(sh("sleep", "100"), "local_cwd")
        runner.cancel(handle)
        status = runner.status(handle)
        assert status is not None
        return status.state

    with get_runner() as runner:
        assert any(state_after_cancel(runner) is AppState.CANCELLED for _ in range(20))


# -- the command line --------------------------------------------------------------------------


def test_the_command_that_shows_logs_ends_by_sys_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[object] = []
    monkeypatch.setattr(sys, "exit", codes.append)
    with pytest.raises(SystemExit):  # what replaces it may return
        cmd_log.validate("junk")
    assert len(codes) == 1
    assert codes != [0]
