"""Apps that are gone, narrow windows: no traceback, the right exit code, whole words."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.terminal import on_terminal

Torchx = Callable[..., Any]
GONE = "local_cwd://torchx/gone-x1"

OF_A_JOB = [
    ["status"],
    ["status", "--wait"],
    ["status", "--watch"],
    ["log"],
    ["log", "-f"],
    ["log", "--verify"],
    ["why"],
    ["describe"],
    ["cancel"],
    ["delete"],
    ["exec", "--no-stdin"],
    ["shell"],
    ["port-forward"],
]
MORE = {"exec": ["--", "true"], "port-forward": ["80"]}


@pytest.mark.parametrize("argv", OF_A_JOB, ids=" ".join)
def test_an_app_that_is_gone_is_told_in_one_wording(
    call: Torchx, argv: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    done = call(*argv, GONE, *MORE.get(argv[0], []))
    assert done.code == 1
    told = "app `gone-x1` does not exist on scheduler `local_cwd`, or has been purged from it"
    hint = "`torchx list -s local_cwd` shows the apps it knows"
    text = "\n".join(caplog.messages)
    if argv[0] == "port-forward":  # which it can for no app
        assert text.startswith("`local_cwd` cannot forward ports") or told in text
    else:
        assert f"{told}\n{hint}" in text


# -- a window of 20 columns -----------------------------------------------------------------------

WRONG = [
    (["runn"], 2, "Did you mean `run`?"),
    (["status", "nope"], 2, "begins with `nope`."),
    (["status", GONE], 1, "does not exist"),
    (["list", "-s", "slrum"], 2, "`slurm`?"),
    (["log", ""], 2, "is no handle"),
    (["run", "--dryrun", "-s", "local_cwd,slrum", "utils.echo"], 2, "`slurm`?"),
    (["run", "utils.ehco"], 2, "`utils.echo`?"),
    (["exec", GONE], 2, "behind `--`:"),
]


@pytest.mark.parametrize(("argv", "code", "told"), WRONG, ids=lambda v: str(v)[:30])
def test_errors_are_whole_words_in_a_narrow_window(argv: list[str], code: int, told: str) -> None:
    screen = on_terminal(*argv, columns=20)
    assert screen.code == code, screen.text
    assert told in " ".join(screen.text.split())
    assert "Traceback" not in screen.text
    message = screen.text[screen.text.rindex("error:") :] if "error:" in screen.text else ""
    for line in message.splitlines():
        assert len(line) <= 20 or " " not in line.strip()


@pytest.mark.parametrize("columns", ["abc", "-5", "0", "", "1"])
def test_a_width_that_is_none_is_no_error(columns: str) -> None:
    screen = on_terminal("list", env={"COLUMNS": columns})
    assert screen.code == 0, screen.text


def test_a_narrow_list_shows_as_much_of_ids_as_there_is_room_for(torchx: Torchx) -> None:
    done = torchx("run", "utils.echo")
    app_id = done.out.strip().rpartition("/")[2]
    header, row = on_terminal("list", columns=20).lines
    assert header.split() == ["APP", "STATE"]
    assert len(row) == 20
    shown, state = row.split()
    assert (shown, state) == (f"{app_id[:8]}…", "SUCCEEDED")
    assert torchx("status", shown.rstrip("…")).code == 0  # a beginning is enough


def test_help_keeps_words_whole_in_a_narrow_window() -> None:
    text = on_terminal("run", "--help", columns=20).text
    for name in ("kubernetes_mcad", "aws_sagemaker", "local_docker"):
        assert name in text
    text = on_terminal("run", "utils.echo", "--help", columns=20).text
    assert re.search(r"\bghcr\.io/pytorch/torchx:\S+", text)


def test_the_doctors_advice_stands_below_its_finding_in_a_narrow_window() -> None:
    lines = on_terminal("doctor", "-s", "local_cwd", columns=20).lines
    assert "    → torchx configure" in lines
