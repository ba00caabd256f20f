"""``torchx log``: identifiers, prefixes, and whose lines are printed."""

import argparse
import io
import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.cli._log_query import LogTarget, parse_count, parse_identifier, parse_time
from torchx.cli._log_replicas import last_lines
from torchx.cli.cmd_log import (
    ENDC,
    GREEN,
    ID_FORMAT,
    CmdLog,
    _prefix_line,
    find_role_replicas,
    get_logs,
    print_log_lines,
    validate,
)
from torchx.errors import BackendUnavailable, UnsupportedRequest
from torchx.runner import Runner
from torchx.schedulers.api import LogBlock, Stream
from torchx.specs import AppDef, AppState, AppStatus, Role

# -- identifiers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "role", "ids"),
    [
        ("kubernetes://s/queue:name-1", None, ()),
        ("kubernetes://s/queue:name-1/role", "role", ()),
        ("kubernetes://s/queue:name-1/role/1", "role", (1,)),
        ("kubernetes://s/queue:name-1/role/1,2,3", "role", (1, 2, 3)),
        ("a_b://s/queue:name-1/role/0,", "role", (0,)),
        ("my-sched.v2+x://s/queue:name-1", None, ()),
    ],
)
def test_identifiers_that_are_taken(text: str, role: str | None, ids: tuple[int, ...]) -> None:
    validate(text)
    scheduler = text.partition(":")[0]
    assert parse_identifier(text) == LogTarget(scheduler, "s", "queue:name-1", role, ids)


def test_an_empty_session_is_the_default_one() -> None:
    target = parse_identifier("slurm:///77")
    assert target is not None
    assert target.handle == "slurm://default/77"


@pytest.mark.parametrize(
    "text",
    [
        "kubernetes://s",
        "s/name/role",
        "k://s/n/role/",
        "l:///App/",
        "://s/n",
        "k://s/n/role/1,,2",
        "k://s/n/role/a",
        "k://s/n/role/1/2",
        "k://s/n\n",
        "k s://s/n",
        "",
    ],
)
def test_identifiers_that_are_not(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        validate(text)
    assert ended.value.code == 2
    assert ID_FORMAT in caplog.text
    assert text.strip() in caplog.text


names = st.text(st.characters(exclude_characters="/\n\r", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None)  # machines may be busy
@given(
    st.text("abz_09-+.", min_size=1),
    st.one_of(st.just(""), names),
    names,
    st.one_of(st.none(), names),
    st.lists(st.integers(0, 10**9), max_size=4),
    st.booleans(),
)
def test_what_is_put_into_an_identifier_comes_out(
    scheduler: str, session: str, app_id: str, role: str | None, ids: list[int], comma: bool
) -> None:
    text = f"{scheduler}://{session}/{app_id}"
    if role is None:
        ids = []
    else:
        text += f"/{role}"
    if ids:
        text += "/" + ",".join(map(str, ids)) + ("," if comma else "")
    expected = LogTarget(scheduler, session or "default", app_id, role, tuple(dict.fromkeys(ids)))
    assert parse_identifier(text) == expected


@settings(deadline=None)  # machines may be busy
@given(st.text("k:/,1-\n a", max_size=20))
def test_no_text_breaks_the_parser(text: str) -> None:
    target = parse_identifier(text)
    assert target is None or target.handle


# -- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x\n", "Px\n"),
        ("x", "Px"),
        ("\rx\n", "\rPx\n"),
        ("a\rb\n", "Pa\rPb\n"),
        ("a\nb\n", "Pa\nPb\n"),
        ("a\r\nb\r\n", "Pa\r\nPb\r\n"),
        ("a\nb", "Pa\nPb"),
        ("\n", "P\n"),
        ("\n\n", "P\nP\n"),
        ("", "P"),
    ],
)
def test_the_prefix_stands_before_every_line(line: str, expected: str) -> None:
    assert _prefix_line("P", line) == expected


@settings(deadline=None)  # machines may be busy
@given(st.lists(st.text(st.characters(exclude_characters="\n\r"))))
def test_many_lines_at_once_are_prefixed_as_one_by_one(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if lines:
        assert _prefix_line("P ", text) == "".join(_prefix_line("P ", f"{x}\n") for x in lines)


# -- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1d12h30s", timedelta(days=1, hours=12, seconds=30)),
        ("1w", timedelta(weeks=1)),
    ],
)
def test_ages(text: str, age: timedelta) -> None:
    now = datetime.now(timezone.utc)
    assert abs(now - age - parse_time(text)) < timedelta(seconds=5)


def test_dates() -> None:
    expected = datetime(2030, 1, 31, 12, tzinfo=timezone.utc)
    assert parse_time("2030-01-31T12:00:00Z") == expected
    assert parse_time("2030-01-31T14:00:00+02:00") == expected
    assert parse_time("2030-01-31 12:00:00") == datetime(2030, 1, 31, 12).astimezone()


def test_more_lines_than_there_can_be_are_all() -> None:
    assert parse_count("9" * 30) == sys.maxsize


@pytest.mark.parametrize("text", ["", "soon", "10", "10x", "m10", "2030-13-01", "99999999999w"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        parse_time(text)


# -- reading through a runner -----------------------------------------------------------------

APP = AppDef(
    "app",
    [Role("trainer", "", entrypoint="x", num_replicas=3), Role("reader", "", entrypoint="x")],
)


class StandIn:
    """Answers like a runner of an earlier release: without merged logs."""

    def __init__(self, states: list[AppState | None] | None = None) -> None:
        self.states = states or [AppState.RUNNING]
        self.calls: list[Any] = []
        self.lines: dict[tuple[str, int], Any] = {}

    def status(self, handle: str) -> AppStatus | None:
        self.calls.append(("status", handle))
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return None if state is None else AppStatus(state)

    def describe(self, handle: str) -> AppDef:
        self.calls.append(("describe", handle))
        return APP

    def log_lines(self, handle: str, role: str, k: int, *args: Any, **kwargs: Any) -> Iterator[str]:
        self.calls.append(("log_lines", handle, role, k, args, kwargs))
        lines = self.lines.get((role, k), [f"{role} says {k}\n"])
        if isinstance(lines, Exception):
            raise lines
        yield from lines


def logs(runner: Any, identifier: str, **kwargs: Any) -> list[str]:
    file = io.StringIO()
    get_logs(file, identifier, kwargs.pop("regex", None), runner=runner, **kwargs)
    return sorted(file.getvalue().splitlines())


def test_all_roles_and_replicas() -> None:
    assert logs(StandIn(), "k://s/app") == [
        "reader/0 reader says 0",
        "trainer/0 trainer says 0",
        "trainer/1 trainer says 1",
        "trainer/2 trainer says 2",
    ]


def test_one_role() -> None:
    assert logs(StandIn(), "k://s/app/reader") == ["reader/0 reader says 0"]


def test_some_replicas_are_read_without_asking_for_the_app() -> None:
    runner = StandIn()
    lines = logs(
        runner, "k://s/app/trainer/0,2", regex="x", should_tail=True, streams=Stream.STDERR
    )
    assert lines == ["trainer/0 trainer says 0", "trainer/2 trainer says 2"]
    expected = {"should_tail": True, "streams": Stream.STDERR}
    assert sorted(runner.calls) == [
        ("log_lines", "k://s/app", "trainer", k, ("x",), expected) for k in (0, 2)
    ]


def test_an_app_that_is_pending_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    runner = StandIn([AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING])
    assert len(logs(runner, "k://s/app")) == 4
    assert caplog.text.count("Waiting") == 1


def test_the_reason_of_a_wait_is_told_whenever_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    reasons = ["", "Resources", "Resources", "JobHeldUser: it is held\nmore", None]

    class Reasons(StandIn):
        def status(self, handle: str) -> AppStatus | None:
            reason = reasons.pop(0)
            return AppStatus(
                AppState.RUNNING if reason is None else AppState.PENDING, msg=reason or ""
            )

    logs(Reasons(), "k://s/app")
    told = [record.getMessage() for record in caplog.records if "Waiting" in record.getMessage()]
    assert told == [
        "Waiting for app `app` to start: PENDING",
        "Waiting for app `app` to start: PENDING: Resources",
        "Waiting for app `app` to start: PENDING: JobHeldUser: it is held",
    ]


class Away(StandIn):
    """A backend that is away for some of the looks."""

    def __init__(self, states: list[Any]) -> None:
        super().__init__(states)

    def status(self, handle: str) -> AppStatus | None:
        if isinstance(self.states[0], Exception):
            raise self.states.pop(0)
        return super().status(handle)


DOWN = BackendUnavailable("nobody answers")


@pytest.mark.parametrize(
    ("states", "follow"),
    [
        ([AppState.PENDING, DOWN, DOWN, AppState.PENDING, AppState.RUNNING], False),
        ([DOWN, AppState.PENDING, AppState.RUNNING], True),
    ],
)
def test_waiting_for_the_start_outlives_an_outage(
    states: list[Any], follow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(logs(Away(states), "k://s/app", should_tail=follow)) == 4
    assert caplog.text.count("cannot be reached, trying again: nobody answers") == 1
    assert caplog.text.count("answers again") == 1


def test_a_backend_that_is_away_at_the_first_look_is_an_error() -> None:
    with pytest.raises(BackendUnavailable):
        logs(Away([DOWN, AppState.RUNNING]), "k://s/app")


def test_a_missing_app_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert logs(StandIn([AppState.PENDING, None]), "k://s/app") == []
    assert "app `app` does not exist on scheduler `k`" in caplog.text


def test_an_unknown_role_is_refused_with_the_roles(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        logs(StandIn(), "k://s/app/trainr")
    assert ended.value.code == 1
    for word in ("0: k://s/app/trainer", "1: k://s/app/reader", "Did you mean `trainer`?"):
        assert word in caplog.text


def test_the_first_failure_is_raised_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = StandIn()
    runner.lines = {("trainer", k): ValueError(f"lost {k}") for k in range(3)}
    with pytest.raises(ValueError, match="lost"):
        logs(runner, "k://s/app")
    assert caplog.text.count("lost") == 2


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    get_logs(Closed(), "k://s/app", None, runner=StandIn())  # type: ignore[arg-type]  # a stand-in


def test_one_replica_at_a_time() -> None:
    runner, file = StandIn(), io.StringIO()
    exceptions: queue.Queue[Exception] = queue.Queue()
    runner.lines = {("a", 0): ["x\n", "y"], ("b", 1): ValueError("lost")}
    print_log_lines(file, runner, "k://s/app", "a", 0, None, False, exceptions, None)  # type: ignore[arg-type]  # a stand-in
    assert file.getvalue() == f"{GREEN}a/0{ENDC} x\n{GREEN}a/0{ENDC} y"
    with pytest.raises(ValueError, match="lost"):
        print_log_lines(file, runner, "k://s/app", "b", 1, None, False, exceptions, None)  # type: ignore[arg-type]  # a stand-in
    assert exceptions.get_nowait().args == ("lost",)


def test_replicas_of_an_app() -> None:
    assert find_role_replicas(APP, "reader") == [("reader", 0)]
    assert find_role_replicas(APP, "nope") == []
    assert len(find_role_replicas(APP, None)) == 4


class Merging(StandIn):
    """Merges logs; the follower sees one line more."""

    blocks = (("a", 0, "1\n2\n"), ("b", 0, "3\n"), ("a", 0, "4\n"))

    def log_blocks(self, handle: str, replicas: Any, **kwargs: Any) -> Iterator[LogBlock]:
        self.calls.append(("log_blocks", handle, replicas, kwargs))
        more = (("b", 0, "5\n"), ("a", 0, "6")) if kwargs["should_tail"] else ()
        blocks = [LogBlock(role, k, 0, text) for role, k, text in self.blocks]
        if "tail_lines" in kwargs:
            blocks = [*last_lines(blocks, kwargs["tail_lines"], None)]
        return iter([*blocks, *(LogBlock(role, k, 0, text) for role, k, text in more)])


def test_merged_logs_keep_their_order() -> None:
    runner, file = Merging(), io.StringIO()
    get_logs(file, "k://s/app/trainer/0,1", None, runner=runner)  # type: ignore[arg-type]  # a stand-in
    assert file.getvalue() == "a/0 1\na/0 2\nb/0 3\na/0 4\n"
    assert runner.calls[0][:3] == ("log_blocks", "k://s/app", [("trainer", 0), ("trainer", 1)])


# -- the command ------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, runner: Any, *argv: str) -> int:
    class Context:
        def __enter__(self) -> Any:
            return runner

        def __exit__(self, *args: object) -> None:
            runner.calls.append("closed")

    monkeypatch.setattr("torchx.cli.cmd_log.get_runner", Context)
    cmd, parser = CmdLog(), argparse.ArgumentParser()
    cmd.add_arguments(parser)
    try:
        cmd.run(parser.parse_args(argv))
    except SystemExit as err:
        return int(err.code or 0)
    finally:
        assert runner.calls.count("closed") <= 1
    return 0


@pytest.mark.parametrize("runner_type", [StandIn, Merging])
@pytest.mark.parametrize("words", [["k://s/app/trainer/0"], ["k://s/app", "trainer/0"]])
def test_the_role_may_be_a_word_of_its_own(
    words: list[str],
    runner_type: type,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runner = runner_type()
    assert run(monkeypatch, runner, *words) == 0
    assert capsys.readouterr().out
    assert runner.calls[-1] == "closed"


def test_a_missing_app_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, StandIn([None]), "k://s/app") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--regex", "["],
        ["--streams", "x"],
        ["--since", "soon"],
        ["--tail-lines", "-1"],
        ["--attempt", "x"],
    ],
)
def test_bad_flags_are_usage(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, StandIn(), *argv, "k://s/app") == 2


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--tail-lines", "1"], "b/0 3\na/0 4\n"),
        (["--tail-lines", "2"], "a/0 2\nb/0 3\na/0 4\n"),
        (["--tail-lines", "0"], ""),
        (["--tail-lines", "1", "-t"], "b/0 3\na/0 4\nb/0 5\na/0 6"),
        (["-t"], "a/0 1\na/0 2\nb/0 3\na/0 4\nb/0 5\na/0 6"),
    ],
)
def test_only_the_last_lines(
    argv: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, Merging(), *argv, "k://s/app") == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--tail-lines", "1"], "a/0 2\nb/0 3\n"),
        (["--tail-lines", "1", "-t"], "a/0 2\nb/0 3\na/0 4\n"),
    ],
)
def test_only_the_last_lines_of_a_scheduler_that_cannot_read_them_alone(
    call: Callable[..., Any], remote: Any, argv: list[str], expected: str
) -> None:
    def log_blocks(
        app_id: str,
        replicas: Any = None,
        *,
        regex: Any,
        since: Any,
        until: Any,
        should_tail: bool,
        streams: Any,
        attempt: Any,
    ) -> Iterator[LogBlock]:
        more = [LogBlock("a", 0, 0, "4\n")] if should_tail else []
        return iter([LogBlock("a", 0, 0, "1\n2\n"), LogBlock("b", 0, 0, "3\n"), *more])

    remote.jobs = {"x": APP}
    remote.log_blocks = log_blocks
    assert call("log", *argv, "remote://torchx/x").out == expected


def test_only_the_last_lines_of_single_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = StandIn()
    runner.lines = {("reader", 0): ["1\n", "2\n", "3\n"]}
    assert run(monkeypatch, runner, "--tail-lines", "2", "k://s/app/reader") == 0
    assert capsys.readouterr().out == "reader/0 2\nreader/0 3\n"


def test_the_flags_reach_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Merging()
    argv = ["--regex", "x+", "--streams", "stderr", "--attempt", "2", "--since", "1h"]
    assert run(monkeypatch, runner, *argv, "--until", "2030-01-01T00:00:00Z", "k://s/app") == 0
    flags = next(call for call in runner.calls if call[0] == "log_blocks")[3]
    assert flags["until"] == datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert flags["since"].tzinfo is not None
    assert (flags["regex"], flags["streams"], flags["attempt"]) == ("x+", Stream.STDERR, 2)
    single = StandIn()
    run(monkeypatch, single, "--until", "2030-01-01T00:00:00Z", "k://s/app/reader")
    assert single.calls[2][5]["until"] == datetime(2030, 1, 1, tzinfo=timezone.utc)


def test_attempts_need_a_scheduler_that_keeps_them(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    remote.jobs = {"a": APP}
    assert call("log", "--attempt", "1", "remote://torchx/a").code == 1
    assert "--attempt" in caplog.text


def test_what_no_replica_can_be_asked_is_told_once(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    remote.jobs = {"a": APP}

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedRequest("no streams here")

    remote.log_iter = refuse
    assert call("log", "--streams", "stderr", "remote://torchx/a").code == 1
    errors = [r for r in caplog.records if r.name == "torchx.cli" and "no streams" in r.message]
    assert len(errors) == 1


def test_lines_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, Merging(), "--json", "k://s/app") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0] == {"role": "a", "replica": 0, "attempt": 0, "line": "1"}
    assert [entry["line"] for entry in found] == ["1", "2", "3", "4"]


def test_log_lines_of_the_runner_can_be_replaced(
    call: Callable[..., Any], remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "log_lines", lambda *args, **kwargs: ["replaced\n"])
    assert call("log", "remote://torchx/a/role/0").out == "role/0 replaced\n"


# -- on this machine --------------------------------------------------------------------------


def test_logs_of_a_local_job_from_another_process(torchx: Callable[..., Any]) -> None:
    script = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
    handle = torchx("run", "utils.sh", "--num_replicas", "2", "--", "sh", "-c", script).out.strip()
    assert sorted(torchx("log", handle).out.splitlines()) == sorted(
        f"sh/{k} {stream}{i}" for k in (0, 1) for stream in ("out", "err") for i in (1, 2, 3)
    )
    assert torchx("log", "--streams", "stdout", handle, "sh/1").out == (
        "sh/1 out1\nsh/1 out2\nsh/1 out3\n"
    )
    assert torchx("log", "--regex", "err[12]", f"{handle}/sh/0").out == "sh/0 err1\nsh/0 err2\n"
    assert torchx("log", "--since", "1h", "--until", "30m", handle).out == ""
    verified = torchx("log", "--verify", handle)
    assert verified.code == 0
    assert verified.out.splitlines()[0].split()[:3] == ["REPLICA", "ATTEMPT", "STREAM"]
    reports = json.loads(torchx("log", "--verify", "--json", handle, "sh/1").out)
    assert {(r["replica"], r["stream"], r["lines"]) for r in reports} == {
        (1, "stdout", 3),
        (1, "stderr", 3),
        (1, "combined", 6),
    }
    lines = torchx("log", "--tail-lines", "2", "--streams", "stderr", handle).out.splitlines()
    assert sorted(lines) == [f"sh/{k} err{i}" for k in (0, 1) for i in (2, 3)]
    for argv, text in (
        (["--attempt", "5", handle], "there is no attempt 5"),
        (["--verify", "--attempt", "9", handle], "there is no attempt 9"),
        (["--verify", handle, "shh"], "has no role `shh`, it has: sh. Did you mean `sh`?"),
        ([handle, "hs/0"], "has no role `hs`, it has: sh"),
        ([handle, "shh/0"], "has no role `shh`, it has: sh. Did you mean `sh`?"),
        ([handle, "shh"], "has no role `shh`. Did you mean `sh`?"),
    ):
        refused = torchx("log", *argv)
        assert refused.code == 1
        assert text in refused.err
    assert torchx("log", handle, "sh/7").code == 1


def test_a_log_with_missing_lines_is_reported(torchx: Callable[..., Any]) -> None:
    argv = ["run", "-cfg", f"log_dir={Path.cwd()}/logs", "utils.sh", "seq", "100"]
    handle = torchx(*argv).out.strip()
    log = next(Path("logs").rglob("stdout.log"))
    log.write_bytes(log.read_bytes()[:-10])
    result = torchx("log", "--verify", handle)
    assert result.code == 1
    assert "NO" in result.out


PROMPTS = (
    "printf 'Enter: '; while [ ! -e go ]; do sleep 0.02; done; echo thanks;"
    " printf '\\r1%%'; printf '\\r2%%'"
)


@pytest.mark.parametrize("way", ["run", "log"])
def test_a_terminal_shows_text_before_its_newline(way: str, torchx: Callable[..., Any]) -> None:
    command = ["run", "utils.sh", "--", "sh", "-c", PROMPTS]
    if way == "log":
        handle = torchx("run", "--detach", *command[1:]).out.strip()
        command = ["log", "-t", handle]
    screen, slave = os.openpty()
    argv = [sys.executable, "-m", "torchx.cli.main", *command]
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = read_until(screen, b"Enter: ")
        assert process.poll() is None
        Path("go").touch()
        shown += read_until(screen, b"2%")
    os.close(screen)
    assert shown.count(b"Enter: ") == shown.count(b"thanks") == shown.count(b"1%") == 1
    assert b"Enter: thanks\r\n" in shown


def read_until(screen: int, text: bytes) -> bytes:
    """What a terminal shows, up to this text."""
    shown = b""
    while text not in shown:
        shown += os.read(screen, 4096)
    return shown
