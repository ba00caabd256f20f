"""``torchx why``, and the same line in ``status``."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.conftest import RemoteScheduler
from torchx.runner import get_runner
from torchx.schedulers.api import AppSnapshot, DescribeAppResponse, ReplicaSnapshot, Scheduler
from torchx.schedulers.causes import Cause, Rule
from torchx.specs import AppDef, AppState, Role


@pytest.fixture
def failed(call: Callable[..., Any], component_file: Any) -> str:
    """The app id of a local job that failed."""
    script = "import sys; print('one'); raise ValueError('loss is NaN')"
    done = call("run", f"{component_file}:sh", "--cmd", f'python3 -c "{script}"')
    assert done.code == 1
    return str(done.out).strip().rpartition("/")[2]


def test_the_cause_its_evidence_and_what_to_do(call: Callable[..., Any], failed: str) -> None:
    result = call("why")
    assert result.code == 0
    assert "app-error: ValueError: loss is NaN" in result.out
    assert "exited with code 1" in result.out
    assert f"torchx log {failed} work/0" in result.out
    assert "\033" not in result.out


def test_what_it_says_to_do_works(call: Callable[..., Any], failed: str) -> None:
    found = json.loads(call("why", "--json", failed).out)
    assert found["cause"] == "app-error"
    assert {item["source"] for item in found["evidence"]} == {"exit", "exception", "log"}
    (command,) = found["do"]
    assert "loss is NaN" in call(*command.split()[1:]).out


def test_status_has_the_same_line(call: Callable[..., Any], failed: str) -> None:
    assert "Why: app-error: ValueError: loss is NaN" in call("status", failed).out


def test_what_is_fine_is_said_to_be(call: Callable[..., Any], component_file: Any) -> None:
    call("run", f"{component_file}:sh", "--cmd", "true")
    assert json.loads(call("why", "--json").out)["cause"] == "none"
    assert "Why:" not in call("status").out


def test_an_app_that_is_gone(call: Callable[..., Any]) -> None:
    result = call("why", "--json", "local_cwd://torchx/nope")
    assert result.code == 1
    assert json.loads(result.out)["error"]["type"] == "UnknownAppException"


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (AppState.FAILED, "unknown"),
        (AppState.PENDING, "starting"),
        (AppState.RUNNING, "none"),
        (AppState.CANCELLED, "cancelled"),
        (AppState.UNKNOWN, "unknown"),
    ],
)
def test_a_scheduler_of_another_package_that_only_describes(
    state: AppState, cause: str, call: Callable[..., Any], remote: Any
) -> None:
    remote.jobs = {"a": AppDef("app", [Role("w", "img", entrypoint="x")])}
    remote.states = [state]
    assert json.loads(call("why", "--json", "remote://torchx/a").out)["cause"] == cause


def test_a_backend_that_is_away_is_the_cause(call: Callable[..., Any]) -> None:
    result = call("why", "--json", "local_docker://torchx/a-1")
    found = json.loads(result.out)
    assert (result.code, found["cause"], found["state"]) == (0, "backend-away", "UNKNOWN")
    assert found["do"] == ["torchx doctor -s local_docker"]
    assert "docker.sock" in found["evidence"][0]["text"]


class Crowded(RemoteScheduler):
    """Has an app that waits, and words for it; counts how often it is looked at."""

    looks = 0

    def look(self, app_id: str) -> AppSnapshot:
        self.looks += 1
        words = "AssocGrpGRES"
        replica = ReplicaSnapshot("echo", 0, AppState.PENDING, reason=words)
        return AppSnapshot(app_id, (replica,), message=words)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return Scheduler.describe(self, app_id)

    def has_look(self) -> bool:
        return True

    def overview(self, app_id: str) -> AppSnapshot | None:
        return self.snapshot(app_id)

    def cause_rules(self) -> list[Rule]:
        return [Rule(Cause.QUOTA, "AssocGrp", "a limit is used up")]


def test_a_run_that_is_left_waiting_says_why_in_the_same_look(
    call: Callable[..., Any], install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Crowded("torchx")
    install("torchx.schedulers", "crowded", lambda session_name, **_: scheduler)
    caplog.set_level("INFO")
    assert call("run", "-s", "crowded", "-cfg", "team=a", "--workspace", "", "utils.echo").code == 0
    assert "why: quota: a limit is used up" in caplog.text
    assert scheduler.looks == 1


class Changing(Crowded):
    """Waits for one reason, then for another of which its message says nothing, then fails."""

    answers = (
        (AppState.PENDING, "AssocGrpGRES", "not yet", None),
        (AppState.PENDING, "AssocGrpGRES", "not yet", None),
        (AppState.PENDING, "HeldByAdmin", "not yet", None),
        (AppState.PENDING, "NoIdea", "not yet", None),
        (AppState.FAILED, "", "", 3),
    )
    stays = False
    """At the first answer, or at the last one."""

    def look(self, app_id: str) -> AppSnapshot:
        place = min(self.looks, len(self.answers) - 1)
        state, reason, message, code = self.answers[0 if self.stays else place]
        self.looks += 1
        replica = ReplicaSnapshot("echo", 0, state, exit_code=code, reason=reason)
        return AppSnapshot(app_id, (replica,), message=message)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """There is news at once."""

    def cause_rules(self) -> list[Rule]:
        return [*super().cause_rules(), Rule(Cause.HELD, "HeldByAdmin", "it is held")]


@pytest.fixture
def changing(install: Callable[..., None]) -> Changing:
    scheduler = Changing("torchx")
    install("torchx.schedulers", "changing", lambda session_name, **_: scheduler)
    return scheduler


RUN = ("run", "-s", "changing", "-cfg", "team=a", "--workspace", "")


def test_a_run_tells_when_the_cause_changes_though_the_message_does_not(
    call: Callable[..., Any], changing: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert call(*RUN, "--wait", "utils.echo").code == 1
    told = [m.partition(" is ")[2] for m in caplog.messages if " is PENDING" in m]
    assert told == [
        "PENDING: quota: a limit is used up (not yet)",
        "PENDING: held: it is held (not yet)",
        "PENDING: not yet",
    ]
    assert "why: app-error: exited with code 3" in caplog.text


@pytest.mark.parametrize("waits", [True, False])
def test_run_status_and_why_say_the_same_line_from_one_look_each(
    waits: bool, call: Callable[..., Any], changing: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    changing.stays = waits
    changing.looks = 0 if waits else len(changing.answers)

    def looks_of(*argv: str) -> tuple[int, Any]:
        before = changing.looks
        result = call(*argv)
        return changing.looks - before, result

    looks, ran = looks_of(*RUN, *([] if waits else ["--wait"]), "utils.echo")
    line = "quota: a limit is used up" if waits else "app-error: exited with code 3"
    assert f"why: {line}" in caplog.text
    assert looks == (1 if waits else 2)  # the wait for its end, and the report of it
    handle = ran.out.strip()
    looks, status = looks_of("status", handle)
    assert f"Why: {line}" in status.out
    assert looks == 1
    looks, why = looks_of("why", handle)
    assert line in why.out
    assert looks == 1
    looks, as_json = looks_of("why", "--json", handle)
    found = json.loads(as_json.out)
    assert f"{found['cause']}: {found['summary']}" == line
    assert looks == 1


def test_every_code_is_one_word_in_small_letters() -> None:
    assert all(cause.value.replace("-", "").isalpha() for cause in Cause)
    assert all(cause.value == cause.name.lower().replace("_", "-") for cause in Cause)


def test_status_waits_for_a_job_that_runs_while_it_looks(
    torchx: Callable[..., Any], tmp_path: Any
) -> None:
    gate = tmp_path / "gate"
    script = f"until test -e {gate}; do sleep 0.05; done; exit 3"
    handle = torchx("run", "--detach", "utils.sh", "--", "sh", "-c", script).out.strip()
    command = [sys.executable, "-m", "torchx.cli.main", "status", "--wait", handle]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        while "RUNNING" not in torchx("status", handle).out:
            pass
        gate.touch()
        out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert "State: FAILED" in out
    assert "Why: app-error: exited with code 3" in out


def test_the_library_tells_the_same() -> None:
    script = "import sys; sys.exit(3)"
    app = AppDef("a", [Role("r", "", entrypoint=sys.executable, args=["-c", script])])
    with get_runner() as runner:
        handle = runner.run(app, "local_cwd")
        runner.wait(handle, wait_interval=0.1)
        found = runner.why(handle)
        assert found is not None
        assert found.cause.value == "app-error"
        assert (found.replica, found.summary) == ("r/0", "exited with code 3")
        assert runner.why("local_cwd://torchx/nobody") is None
