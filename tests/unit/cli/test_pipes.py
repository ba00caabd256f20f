"""Output that nobody reads any more, from the start or later, and output that cannot be written."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Torchx = Callable[..., Any]
COMMAND = [sys.executable, "-m", "torchx.cli.main"]


@pytest.fixture
def ended(torchx: Torchx) -> str:
    """The handle of a job that has failed, with more lines than a pipe holds."""
    script = "seq 30000; echo last >&2; exit 3"
    return str(torchx("-q", "run", "utils.sh", "--", "sh", "-c", script).out.strip())


@pytest.fixture
def idle(torchx: Torchx) -> Iterator[str]:
    """The handle of a job that has written one line, and will not write another one."""
    script = "echo first; exec sleep 300"
    handle = torchx("-q", "run", "--detach", "utils.sh", "--", "sh", "-c", script).out.strip()
    yield handle
    torchx("delete", handle)


def unread(*argv: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose output nobody ever reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, *argv],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
            env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr.decode()


ALL = [
    ["--help"],
    ["-h"],
    ["--version"],
    ["-V"],
    ["list"],
    ["list", "--json"],
    ["list", "--watch"],
    ["builtins"],
    ["runopts"],
    ["runopts", "--json", "slurm"],
    ["doctor", "-s", "local_cwd"],
    ["plugins"],
    ["run", "--help"],
    ["run", "utils.echo", "--help"],
    ["log", "--help"],
    ["run", "--dryrun", "utils.echo"],
    ["run", "--dryrun", "-s", "local_cwd,slurm", "utils.echo"],
    ["completion", "bash"],
    ["configure", "--print"],
    ["prune", "--dryrun"],
]
OF_A_JOB = [
    ["log"],
    ["log", "-f"],
    ["log", "--json"],
    ["log", "--verify"],
    ["why"],
    ["status"],
    ["status", "--watch"],
    ["describe", "--json"],
    ["rerun", "--dryrun"],
]


@pytest.mark.parametrize("argv", ALL, ids=" ".join)
def test_nobody_reads(argv: list[str]) -> None:
    code, err = unread(*argv)
    assert code == 0
    assert "Error" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize("argv", OF_A_JOB, ids=" ".join)
def test_nobody_reads_of_a_job(argv: list[str], ended: str) -> None:
    code, err = unread(*argv, ended)
    assert code == 0
    assert "Traceback" not in err
    assert "roken pipe" not in err


def test_a_job_runs_to_its_end_whoever_reads() -> None:
    code, err = unread("run", "utils.sh", "--", "sh", "-c", "echo one; exit 3")
    assert code == 1
    assert "exited with code 3" in err


@pytest.mark.parametrize(
    "argv", [["log", "-f"], ["log", "-f", "--json"], ["status", "--watch"]], ids=" ".join
)
def test_a_reader_that_goes_ends_a_command_that_waits(argv: list[str], idle: str) -> None:
    following = subprocess.Popen(
        [*COMMAND, *argv, idle], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert following.stdout is not None
    assert following.stdout.readline()
    following.stdout.close()  # as `head -1` does
    _, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (0, b"")


@pytest.mark.parametrize("argv", [["list", "--watch"], ["status", "--wait"]], ids=" ".join)
def test_a_reader_that_was_never_there_ends_a_command_that_waits(
    argv: list[str], idle: str
) -> None:
    code, err = unread(*argv, *([idle] if argv[0] == "status" else []))
    assert code == 0
    assert "ERROR" not in err
    assert "Traceback" not in err


def test_a_reader_that_stays_loses_nothing(idle: str) -> None:
    following = subprocess.Popen(
        [*COMMAND, "log", "-f", idle], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert following.stdout is not None
    assert following.stdout.readline() == b"sh/0 first\n"
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out) == (130, b"")
    assert b"Traceback" not in err


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["list"]], ids=" ".join)
def test_output_that_cannot_be_written(argv: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *argv], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert "the output cannot be written: No space left on device" in done.stderr.decode()


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["list"], ["log"]], ids=" ".join)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_stream_that_is_closed_from_the_start(argv: list[str], closed: str, ended: str) -> None:
    script = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (closed != ">&-")


BROKEN = """
import os, socket, time
from torchx.cli._reader import while_read

with while_read():
    ours, theirs = socket.socketpair()
    theirs.close()
    for _ in range(20):
        try:
            ours.send(b"x")
        except BrokenPipeError:
            time.sleep(0.01)
print("went on")
"""


def test_a_connection_that_breaks_is_no_reader_that_has_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
