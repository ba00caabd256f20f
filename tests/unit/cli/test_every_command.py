"""What holds for every command: it fits its terminal, and elsewhere it is plain text."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.terminal import ESCAPES, Screen, off_terminal, on_terminal
from torchx.cli.main import COMMANDS

WIDTHS = [60, 100, 200]

USES = {
    "builtins": "",
    "cancel": "no-such-app",
    "completion": "bash",
    "configure": "--print",
    "delete": "no-such-app",
    "describe": "",
    "doctor": "-s local_cwd",
    "exec": "no-such-app -- true",
    "list": "",
    "log": "-n 2",
    "plugins": "",
    "port-forward": "no-such-app 8080",
    "prune": "--dryrun",
    "rerun": "no-such-app",
    "run": "utils.echo --msg hello",
    "runopts": "--resolved local_cwd",
    "shell": "no-such-app",
    "status": "",
    "tracker": "list jobs",
    "why": "",
}
"""A use of each command that leaves things as they are."""
WHOLE = ("completion", "configure", "log")
"""What they print is a program, a file, and what a job wrote."""


def test_there_is_a_use_of_every_command() -> None:
    assert USES.keys() == COMMANDS.keys()


@pytest.fixture
def failed(tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """The app id of a job that failed, with long words and long lines in it."""
    (tmp_path / "job.py").write_text(
        "import torchx.specs as specs\n"
        "def train() -> specs.AppDef:\n"
        '    """Trains ' + "one model after another " * 8 + '"""\n'
        "    script = 'echo " + "epoch " * 20 + "; raise() { exit 3; }; raise'\n"
        "    role = specs.Role('trainer', '', entrypoint='sh', args=['-c', script],\n"
        "                      num_replicas=2, resource=specs.Resource(1, 0, 64))\n"
        "    return specs.AppDef('train', [role])\n"
    )
    monkeypatch.chdir(tmp_path)
    return str(call("run", "job.py:train").out).strip().rpartition("/")[2]


def broken_in_words(screen: Screen, columns: int) -> list[str]:
    """Lines that the terminal breaks, and that could have been broken elsewhere.

    Commands that are to be pasted stay whole, and so does a word that is longer than a line.
    """
    found = []
    for line in screen.left:
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        is_command = re.match(r"(→ )?(torchx|kubectl|docker|sinfo) ", body)
        longest = max((len(word) for word in body.split()), default=0)
        if len(line) > columns and not is_command and indent + longest <= columns:
            found.append(line)
    return found


@pytest.mark.parametrize(
    "columns", [WIDTHS[0], *(pytest.param(w, marks=pytest.mark.thorough) for w in WIDTHS[1:])]
)
@pytest.mark.parametrize("command", sorted(USES))
def test_no_command_breaks_words(command: str, columns: int, failed: str) -> None:
    for argv in ([command, *USES[command].split()], [command, "--help"], [command, "--zz"]):
        screen = on_terminal(*argv, columns=columns)
        if "--help" in argv or command not in WHOLE:
            assert broken_in_words(screen, columns) == []
        assert not any(line.startswith("Traceback") for line in screen.lines)
        assert re.search(r"^torchx \d{4}-\d\d-\d\d", screen.text, re.MULTILINE) is None


@pytest.mark.parametrize("command", sorted(USES))
def test_every_command_is_plain_text_elsewhere(command: str, failed: str) -> None:
    on = on_terminal(command, *USES[command].split())
    off = off_terminal(command, *USES[command].split())
    assert off.code == on.code
    assert ESCAPES.search(off.raw) is None
    assert "\r" not in off.raw
    assert not set("●✓✗○│→⠋") & set(off.raw)


def test_the_help_of_all_fits(failed: str) -> None:
    for columns in WIDTHS:
        assert broken_in_words(on_terminal("--help", columns=columns), columns) == []
        assert broken_in_words(on_terminal("bogus", columns=columns), columns) == []


def test_texts_of_components_fit(failed: str) -> None:
    for argv in (["run", "job.py:train", "--help"], ["run", "job.py:train", "--bogus", "1"]):
        assert broken_in_words(on_terminal(*argv, columns=60), 60) == []


def test_commands_in_messages_stay_whole(failed: str) -> None:
    lines = on_terminal("run", columns=60).lines
    assert any("`torchx run COMPONENT`" in line for line in lines)
    lines = on_terminal("run", "nope", columns=60).lines
    assert any("`torchx builtins`" in line for line in lines)


def test_a_file_in_the_place_of_a_component_is_no_module(failed: str) -> None:
    text = " ".join(on_terminal("run", "job.py", columns=60).text.split())
    assert "`torchx run job.py:train`" in text
    assert "`torchx run utils.python --script job.py`" in text


def test_what_became_of_an_app_is_told_by_its_id(call: Callable[..., Any], failed: str) -> None:
    call("run", "--detach", "utils.sh", "sleep", "60")
    handle = call("list", "-n", "1", "-o", "name").out.strip()
    app_id = handle.rpartition("/")[2]
    assert on_terminal("cancel", handle).lines == [f"✗ {app_id} CANCELLED"]
    assert on_terminal("cancel", handle).lines == [f"✗ {app_id} had ended before: CANCELLED"]
    assert on_terminal("delete", handle).lines == [f"{app_id} is deleted"]


def test_an_interrupted_run_shows_its_handle_once(failed: str) -> None:
    import os
    import signal

    def interrupt() -> None:
        below = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        for pid in below:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if b"torchx.cli.main" in line and int(stat[1]) == os.getpid():
                os.kill(pid, signal.SIGINT)

    steps = [("began", interrupt)]
    argv = ("run", "utils.sh", "--", "sh", "-c", "echo began; sleep 60")
    screen = on_terminal(*argv, steps=steps)
    assert screen.code == 130
    assert screen.text.count("local_cwd://") == 1
    assert re.search(r"job `sh-\w+` was cancelled", " ".join(screen.text.split()))


@pytest.mark.parametrize("argv", [["-v", "run", "utils.echo"], ["status", "-v"]])
def test_v_shows_all_with_times(argv: list[str], failed: str) -> None:
    screen = on_terminal(*argv)
    assert screen.code == 0
    plain = on_terminal(*[word for word in argv if word != "-v"])
    times = r"torchx \d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    assert re.search(times, plain.text) is None
    assert re.search(times, screen.text) or argv[0] == "status"


def test_v_behind_run_is_for_the_component(failed: str) -> None:
    assert on_terminal("run", "-v", "utils.echo").code == 2
