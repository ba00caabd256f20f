"""Commands in running replicas: what a scheduler declares works, the rest is refused."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchx.errors import UnsupportedRequest
from torchx.schedulers.api import AppDef, AppSnapshot, ExecRequest, ReplicaSnapshot
from torchx.specs.api import AppState, macros
from torchx.testing._contract.jobs import APP, WORKER, ContractParts, Jobs

WAITS = "echo started; sleep 3600"
ODD = 'it\'s "x" $HOME\n y'


class Executed:
    """The exit code and output of a command."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode()
        self.err = err.decode()


class InsideContract(ContractParts):
    """Tests of commands and ports in running replicas."""

    no_commands: str = ""
    """Why a stand-in for a backend cannot run commands; empty if it can."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Folder for the input and output of commands."""
        made = tmp_path / "inside"
        made.mkdir()
        return made

    def test_commands_are_refused_where_they_are_not_declared(self, jobs: Jobs) -> None:
        if jobs.scheduler.features.execute:
            pytest.skip("the scheduler declares `execute`")
        replica = ReplicaSnapshot(WORKER, 0, AppState.RUNNING, host="somewhere")
        snapshot = AppSnapshot("app", (replica,))
        with pytest.raises(UnsupportedRequest, match="somewhere"):
            jobs.scheduler.execute(snapshot, replica, ExecRequest(("true",)))

    def test_ports_are_refused_where_they_are_not_declared(self, jobs: Jobs) -> None:
        if jobs.scheduler.features.port_forward:
            pytest.skip("the scheduler declares `port_forward`")
        replica = ReplicaSnapshot(WORKER, 0, AppState.RUNNING, host="somewhere")
        with pytest.raises(UnsupportedRequest, match="somewhere"):
            jobs.scheduler.open_port(AppSnapshot("app", (replica,)), replica, 80)

    def test_a_command_has_the_environment_of_its_replica(self, jobs: Jobs, folder: Path) -> None:
        self.need_commands(jobs)
        env = {"K": f"k{macros.replica_id}", "ODD": ODD}
        app_id = jobs.start(jobs.sh(WAITS, num_replicas=2, env=env))
        ran = execute(jobs, app_id, 1, ["sh", "-c", 'printf "%s|%s" "$K" "$ODD"; pwd >&2'], folder)
        assert (ran.code, ran.out) == (0, f"k1|{ODD}")
        assert ran.err.startswith("/")

    def test_commands_of_several_roles_are_told_apart(self, jobs: Jobs, folder: Path) -> None:
        self.need_commands(jobs)
        jobs.need("multi_role")
        roles = [
            jobs.role("sh", "-c", WAITS, name=name, env={"WHO": name}) for name in ("one", "two")
        ]
        app_id = jobs.start(AppDef(APP, roles))
        ran = execute(jobs, app_id, 0, ["sh", "-c", "echo $WHO"], folder, role="two")
        assert (ran.code, ran.out) == (0, "two\n")

    def test_a_command_reads_its_input_to_the_end(self, jobs: Jobs, folder: Path) -> None:
        self.need_commands(jobs)
        app_id = jobs.start(jobs.sh(WAITS))
        given = b"".join(b"%d\n" % n for n in range(50_000))
        ran = execute(jobs, app_id, 0, ["sh", "-c", "cat; echo end"], folder, given)
        assert ran.code == 0
        assert ran.out == given.decode() + "end\n"

    @pytest.mark.parametrize(
        ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("nosuchcommand", 127)]
    )
    def test_the_exit_code_of_a_command(
        self, jobs: Jobs, folder: Path, script: str, code: int
    ) -> None:
        self.need_commands(jobs)
        app_id = jobs.start(jobs.sh(WAITS))
        assert execute(jobs, app_id, 0, ["sh", "-c", script], folder).code == code

    def test_a_command_can_have_a_terminal(self, jobs: Jobs, folder: Path) -> None:
        self.need_commands(jobs)
        app_id = jobs.start(jobs.sh(WAITS))
        looked = started(jobs, app_id, WORKER, 0)
        shown = Terminal()
        shown.type("exit 5\n")
        size = f"{Terminal.ROWS} {Terminal.COLUMNS}"
        # the size may come a moment after the start, as where it is told over a connection
        until = f'until [ "$(stty size)" = "{size}" ]; do sleep 0.1; done'
        command = ("sh", "-c", f"{until}; stty size; tty; read line; eval $line")
        try:
            request = ExecRequest(command, True, shown.slave, shown.slave, shown.slave)
            assert jobs.scheduler.execute(*looked, request) == 5
        finally:
            text = shown.close()
        assert size in text
        assert "/dev/" in text

    def need_commands(self, jobs: Jobs) -> None:
        """Skips the test where commands cannot be run."""
        jobs.need("execute")
        if self.no_commands:
            pytest.skip(self.no_commands)


def execute(
    jobs: Jobs,
    app_id: str,
    k: int,
    command: Sequence[str],
    folder: Path,
    given: bytes = b"",
    role: str = WORKER,
) -> Executed:
    """Runs a command in a replica, once it runs."""
    snapshot, replica = started(jobs, app_id, role, k)
    (folder / "in").write_bytes(given)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    stdin = os.open(folder / "in", os.O_RDONLY)
    stdout, stderr = (os.open(folder / name, flags, 0o600) for name in ("out", "err"))
    try:
        request = ExecRequest(tuple(command), False, stdin, stdout, stderr)
        code = jobs.scheduler.execute(snapshot, replica, request)
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    return Executed(code, (folder / "out").read_bytes(), (folder / "err").read_bytes())


def started(jobs: Jobs, app_id: str, role: str, k: int) -> "tuple[AppSnapshot, ReplicaSnapshot]":
    """Returns the replica once its program has started."""

    def running() -> "tuple[AppSnapshot, ReplicaSnapshot] | None":
        snapshot = jobs.scheduler.snapshot(app_id)
        found = snapshot.find((role, k)) if snapshot is not None else None
        if snapshot is None or found is None or found.state is not AppState.RUNNING:
            return None
        return (snapshot, found) if _printed(jobs, app_id, role, k) else None

    looked = jobs.until(running)
    assert looked is not None  # `until` gives nothing false
    return looked


def _printed(jobs: Jobs, app_id: str, role: str, k: int) -> bool:
    """Returns True if its program has started: a state may be reported before that."""
    return not jobs.scheduler.features.logs or bool(jobs.lines(app_id, role, k))


class Terminal:
    """A pseudo-terminal, and its output."""

    ROWS, COLUMNS = 33, 111

    def __init__(self) -> None:
        import pty

        self._master, self.slave = pty.openpty()
        self.resize(self.ROWS, self.COLUMNS)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """The output so far."""
        return self._shown.decode(errors="replace")

    def resize(self, rows: int, columns: int) -> None:
        """Sets its size."""
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Types a text."""
        os.write(self._master, text.encode())

    def close(self) -> str:
        """Closes it; returns its output."""
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)
        return self.text

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self._shown += data
