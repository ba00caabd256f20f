"""BackendPrograms of a backend, and what their failures become."""

import os
from pathlib import Path

import pytest

from torchx.errors import BackendUnavailable, CommandFailed, ProgramNotFound
from torchx.schedulers._core.command import BackendPrograms, Waiting, stderr_message

PROGRAMS = BackendPrograms("Acme", "install it", lambda text: "try later" in text)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a shell program named ``acme`` on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def put(text: str) -> None:
        path = tmp_path / "acme"
        path.write_text(f"#!/bin/sh\necho call >>calls\n{text}\n")
        path.chmod(0o755)

    return put


def calls() -> int:
    return len(Path("calls").read_text().split())


def test_a_call_gives_what_was_printed_and_reads_what_it_is_given(program):
    program("cat; printf '%s|' \"$@\"; printf '\\377'")
    assert PROGRAMS.run(["acme", "a b", "$HOME"]) == "a b|$HOME|\ufffd"
    assert PROGRAMS.run(["acme"], input=b"text ") == "text |\ufffd"
    assert PROGRAMS.ask(["acme", "x"]) == "x|\ufffd"


@pytest.mark.parametrize("call", [PROGRAMS.run, PROGRAMS.ask])
def test_a_program_that_is_not_there_is_an_error_that_says_what_to_do(call):
    with pytest.raises(ProgramNotFound, match="`no-such-program` was not found: install it"):
        call(["no-such-program"])
    Path("text").write_text("no program")
    with pytest.raises(BackendUnavailable, match=r"`\./text` cannot be run: Permission denied"):
        call(["./text"])


@pytest.mark.parametrize("call", [PROGRAMS.run, PROGRAMS.ask])
def test_a_failure_has_the_words_of_the_program_and_is_not_repeated(program, call):
    program("echo out; echo 'acme: error: no' >&2; echo ' such queue' >&2; exit 3")
    with pytest.raises(CommandFailed, match="`acme` failed: no; such queue") as caught:
        call(["acme"])
    assert (caught.value.exit_code, caught.value.stderr) == (3, "no; such queue")
    assert calls() == 1
    program("echo told on stdout; exit 3")
    with pytest.raises(CommandFailed, match="told on stdout"):
        call(["acme"])


def test_a_question_is_repeated_while_the_backend_is_away_and_an_order_is_not(program):
    program(
        "[ -e back ] && { echo fine; exit; }; mv away back 2>/dev/null; echo try later >&2; exit 1"
    )
    Path("away").touch()
    with pytest.raises(BackendUnavailable, match="Acme cannot be reached: `acme` says: try later"):
        PROGRAMS.run(["acme"])
    Path("back").rename("away")
    before = calls()
    assert PROGRAMS.ask(["acme"], pauses_s=[0.01, 0.01]) == "fine\n"
    assert calls() == before + 2
    Path("back").unlink()
    with pytest.raises(BackendUnavailable, match="try later"):
        PROGRAMS.ask(["acme"], pauses_s=[0.01])


def test_a_program_that_does_not_end_is_given_up(program):
    program("exec sleep 60")
    with pytest.raises(BackendUnavailable, match=r"`acme` gave no answer within 0\.1 s"):
        PROGRAMS.run(["acme"], timeout_s=0.1)


def test_a_user_is_told_of_a_long_wait_once(caplog, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    waiting = Waiting()
    for now in (1.0, 2.9, 3.1, 50.0):
        clock[0] = now
        assert waiting.transient(BackendUnavailable("it is away"))
        assert [*caplog.messages] == (["it is away; trying again"] if now > 3 else [])
    assert not waiting.transient(ProgramNotFound("none"))
    assert not waiting.transient(ValueError("other"))


def test_words_without_the_name_of_the_program():
    text = "bsub: fatal: a\nacme: error: b\n\n  c \n"
    assert stderr_message(text, "acme") == "bsub: fatal: a; b; c"
    assert stderr_message("", "acme") == ""
