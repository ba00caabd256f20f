"""The monitor of programs, with real programs."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.apps.utils import process_monitor
from torchx.apps.utils.process_monitor import TIMEOUT_EXIT_CODE, main, monitor, parse_args

STUBBORN = "trap '' TERM; echo ready > $0; while :; do sleep 0.05; done"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


@pytest.fixture
def after(tmp_path: Path) -> Iterator[object]:
    """Does something once a file exists, while the monitor has the main thread."""
    threads = []

    def start(path: Path, action) -> None:
        def run() -> None:
            wait_for(path)
            action()

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


# -- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["prog"], ["prog"]),
        (["--", "prog", "--x", "1"], ["prog", "--x", "1"]),
        (["--timeout", "3", "prog", "--timeout", "4"], ["prog", "--timeout", "4"]),
        (["--timeout=3", "--", "prog", "--", "x"], ["prog", "--", "x"]),
        (["prog", "--", "x"], ["prog", "--", "x"]),
        (["--start_on_file", "", "--", "prog"], ["prog"]),
        (["--", "-odd"], ["-odd"]),
    ],
)
def test_the_program_and_its_arguments_are_taken_as_they_are(argv, command):
    args = parse_args(argv)
    assert [args.entrypoint, *args.args] == command


def test_the_options_have_the_documented_defaults():
    args = vars(parse_args(["x"]))
    assert args == {
        "timeout": None,
        "start_on_file": None,
        "exit_on_file": None,
        "poll_rate": 5,
        "kill_timeout": 60,
        "entrypoint": "x",
        "args": [],
    }
    assert parse_args(["--timeout", "1.5", "x"]).timeout == 1.5


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--"],
        ["--timeout", "5"],
        ["--timeout", "-1", "x"],
        ["--timeout", "nan", "x"],
        ["--poll_rate", "0", "x"],
        ["--poll_rate", "inf", "x"],
        ["--kill_timeout", "a", "x"],
        ["--nope", "1", "x"],
    ],
)
def test_a_wrong_command_line_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "process_monitor: error:" in capsys.readouterr().err


# -- the program's end ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_programs(code):
    with pytest.raises(SystemExit) as ended:
        main(["--poll_rate", "60", "--", "sh", "-c", f"exit {code}"])
    assert ended.value.code == code


def test_the_end_of_the_program_is_noticed_between_two_looks_at_the_file(tmp_path: Path):
    code = monitor(["true"], exit_on_file=str(tmp_path / "no"), poll_rate=10**6)
    assert code == 0  # in a test with a time limit far below that


def test_a_program_that_a_signal_ended_has_its_negative_number():
    assert monitor(["sh", "-c", "kill -KILL $$"]) == -signal.SIGKILL


def test_after_the_time_limit_it_is_terminated(capsys):
    assert monitor(["sleep", "600"], timeout=0.1) == -signal.SIGTERM
    assert capsys.readouterr().out == "reached timeout, terminating...\n"


def test_what_does_not_end_is_killed(capsys, tmp_path: Path, after):
    ready, stop = tmp_path / "ready", tmp_path / "stop"
    after(ready, stop.touch)
    command = ["sh", "-c", STUBBORN, str(ready)]
    code = monitor(command, exit_on_file=str(stop), poll_rate=0.01, kill_timeout=0.1)
    assert code == -signal.SIGKILL
    assert capsys.readouterr().out.splitlines() == [
        f"{stop} exists, terminating...",
        "reached safe termination timeout, killing...",
    ]


def test_what_the_program_started_ends_with_it(tmp_path: Path):
    pid_file = tmp_path / "pid"
    script = f"(trap '' TERM; sleep 600) & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}"
    command = ["sh", "-c", f"{script}; wait"]
    assert monitor(command, exit_on_file=str(pid_file), poll_rate=0.01) == -signal.SIGTERM
    pid = pid_file.read_text().strip()
    deadline = time.monotonic() + 30
    while Path("/proc", pid).exists() and Path("/proc", pid, "cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_zombie_is_left():
    code = (  # in a process of its own: other tests leave children here, as of multiprocessing
        "import os\n"
        "from torchx.apps.utils.process_monitor import monitor\n"
        "monitor(['true'])\n"
        "os.waitpid(-1, os.WNOHANG)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.stderr.splitlines()[-1].startswith("ChildProcessError")


def test_signal_handlers_are_as_before():
    before = [signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)]
    monitor(["true"])
    assert before == [signal.getsignal(n) for n in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)]
    assert signal.set_wakeup_fd(-1) == -1


def test_the_file_may_be_of_any_file_system(after, tmp_path: Path):
    import fsspec

    fs = fsspec.filesystem("memory")
    ready = tmp_path / "ready"
    after(ready, lambda: fs.pipe("/monitor/done", b""))
    command = ["sh", "-c", "echo > $0; sleep 600", str(ready)]
    try:
        code = monitor(command, exit_on_file="memory://monitor/done", poll_rate=0.01)
    finally:
        fs.rm("/monitor", recursive=True)
    assert code == -signal.SIGTERM


# -- the start -----------------------------------------------------------------------------------


def test_it_waits_for_the_file_to_start(tmp_path: Path, after):
    go, log = tmp_path / "go", tmp_path / "log"
    timer = threading.Timer(0.1, go.touch)
    timer.start()
    command = ["sh", "-c", f"test -e {go} && echo started > {log}"]
    assert monitor(command, start_on_file=str(go), poll_rate=0.01) == 0
    timer.join()
    assert log.read_text() == "started\n"


def test_the_time_limit_holds_before_the_start_too(tmp_path: Path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--timeout", "0.1", "--start_on_file", str(tmp_path / "no"), "--", "touch", "ran"])
    assert ended.value.code == TIMEOUT_EXIT_CODE == 34
    assert capsys.readouterr().out == "reached timeout before launching, terminating...\n"
    assert not Path("ran").exists()


def test_empty_names_of_files_are_none(tmp_path: Path):
    with pytest.raises(SystemExit) as ended:
        main(["--start_on_file", "", "--exit_on_file", "", "--", "true"])
    assert ended.value.code == 0


@pytest.mark.parametrize("program", ["no-such-program", "./data", "bad\0name", ""])
def test_a_program_that_cannot_be_started_is_told(program, capsys):
    Path("data").write_text("no program")
    with pytest.raises(SystemExit) as ended:
        main(["--", program])
    assert ended.value.code == 127
    err = capsys.readouterr().err
    assert err.startswith(f"process_monitor: cannot start `{program}`:")
    assert "Traceback" not in err


def test_a_bad_url_is_told_before_anything_runs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--exit_on_file", "nosuchfs://x", "--", "touch", "ran"])
    assert ended.value.code == 127
    assert "`nosuchfs://x` is not a path or a URL" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_files_need_fsspec_and_programs_do_not():
    code = (
        "import sys; sys.modules['fsspec'] = sys.modules['fsspec.core'] = None\n"
        "from torchx.apps.utils.process_monitor import main; main(sys.argv[1:])"
    )
    program = [sys.executable, "-c", code]
    assert subprocess.run([*program, "true"], check=False).returncode == 0
    done = subprocess.run(
        [*program, "--exit_on_file", "x", "true"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 127
    assert "pip install 'torchx[fsspec]'" in done.stderr


# -- signals -------------------------------------------------------------------------------------


def start_monitor(*args: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", process_monitor.__name__, *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_monitor_ends_the_program(number, tmp_path: Path):
    script = "trap 'echo bye > bye; exit 7' TERM; echo > ready; while :; do sleep 0.05; done"
    process = start_monitor("--", "sh", "-c", script)
    wait_for(Path("ready"))
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 7
    assert out == f"received {signal.Signals(number).name}, terminating...\n"
    assert Path("bye").read_text() == "bye\n"


def test_a_shell_sees_the_negative_code_modulo_256():
    process = start_monitor("--timeout", "0.1", "--", "sleep", "600")
    process.communicate(timeout=60)
    assert process.returncode == 256 - signal.SIGTERM


def test_a_signal_before_the_start_starts_nothing(tmp_path: Path):
    process = start_monitor("--poll_rate", "0.01", "--start_on_file", "go", "--", "touch", "ran")
    deadline = time.monotonic() + 30
    while not _handles(process.pid, signal.SIGTERM):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not Path("ran").exists()


def _handles(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for the signal."""
    status = Path("/proc", str(pid), "status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (number - 1)))
