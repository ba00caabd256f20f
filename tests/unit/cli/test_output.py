"""Colour per stream, tables, and secrets."""

import io
import json
from typing import Any

import pytest

from torchx._words import closest
from torchx.cli import _output, _secrets
from torchx.cli._log_printer import LogPrinter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "mode", "tty", "expected"),
    [
        ({}, "auto", True, True),
        ({}, "auto", False, False),
        ({"NO_COLOR": "1"}, "auto", True, False),
        ({"NO_COLOR": ""}, "auto", True, True),
        ({"FORCE_COLOR": "1"}, "auto", False, True),
        ({"FORCE_COLOR": "0"}, "auto", False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "auto", True, False),
        ({"TERM": "dumb"}, "auto", True, False),
        ({"NO_COLOR": "1"}, "always", False, True),
        ({"FORCE_COLOR": "1"}, "never", True, False),
    ],
)
def test_each_stream_is_judged_by_itself(
    env: dict[str, str], mode: str, tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    _output.set_color(mode)
    assert _output.colored(Terminal() if tty else io.StringIO()) is expected


def test_a_closed_stream_has_no_colour() -> None:
    stream = io.StringIO()
    stream.close()
    assert not _output.colored(stream)


def test_prefixes_have_colours_of_their_own_and_one_width_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    printer = LogPrinter(stream, replicas=[("w", 0), ("reader", 0)])
    printer.write("w", 0, 0, "x\n")
    printer.write("reader", 0, 0, "y\n")
    bar = "\033[2m|\033[0m"
    assert stream.getvalue() == (
        f"\033[36mw/0     \033[0m {bar} x\n\033[35mreader/0\033[0m {bar} y\n"
    )


def test_two_replicas_or_attempts_never_share_a_line() -> None:
    stream = io.StringIO()
    printer = LogPrinter(stream)
    for attempt, text in enumerate(("a", "", "b\n")):
        printer.write("w", 0, attempt, text)
    printer.write("w", 1, 0, "c")
    printer.finish()
    printer.finish()
    assert stream.getvalue() == "w/0 a\nw/0 b\nw/1 c\n"


def test_tables_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    _output.out_table(["A", "LONG"], [["xxx", "1"], ["y", ""]])
    assert capsys.readouterr().out == "A    LONG\n---  ----\nxxx  1\ny\n"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "my-secret", "DB_PASSWORD", "PASSWD", "CREDENTIALS", "APIKEY", "WANDB_API_KEY",
     "PRIVATE_KEY", "AWS_SECRET_ACCESS_KEY", "aws_access_key_id"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert _secrets.looks_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "PWD", "NCCL_DEBUG"]
)
def test_names_of_other_variables(name: str) -> None:
    assert not _secrets.looks_secret(name)


def app_with(**env: str) -> dict[str, Any]:
    return {"name": "a", "roles": [{"env": env}]}


def test_the_app_is_masked_and_left_alone() -> None:
    app = app_with(TOKEN="t", EMPTY_TOKEN="", X="y")
    assert _secrets.mask_app(app)["roles"][0]["env"] == {
        "TOKEN": "***",
        "EMPTY_TOKEN": "",
        "X": "y",
    }
    assert app["roles"][0]["env"]["TOKEN"] == "t"


@pytest.mark.parametrize(
    ("request_text", "value"),
    [
        ("export TOKEN=%s\n", "1"),
        ("export TOKEN='%s'\n", "a,b"),
        ("{'TOKEN': '%s', 'n': 11}", "1"),
        ('{"TOKEN": "%s"}', "abc"),
        ("- name: TOKEN\n  value: %s\n", "abc"),
        ("- name: TOKEN\n  value: '%s'\n", "12"),
        ("anything with %s inside", "long-enough-to-find"),
        ("%s", 'it\'s "quoted" and\nlong'),
    ],
)
def test_rendered_requests_are_masked(request_text: str, value: str) -> None:
    app = app_with(TOKEN=value, OTHER="kept")
    for spelling in (value, repr(value)[1:-1], json.dumps(value)[1:-1]):
        masked = _secrets.mask_text(request_text % spelling, app)
        assert masked == request_text % "***"


def test_a_short_secret_does_not_hide_other_text() -> None:
    assert _secrets.mask_text("TOKEN=1 n=11 m=1", app_with(TOKEN="1")) == "TOKEN=*** n=11 m=1"


def test_plain_data_is_masked_by_key_and_by_name() -> None:
    data = {
        "env": [{"name": "TOKEN", "value": "x"}, {"name": "A", "value": "b"}],
        "db_password": "p",
        "n": 1,
    }
    assert _secrets.mask_data(data) == {
        "env": [{"name": "TOKEN", "value": "***"}, {"name": "A", "value": "b"}],
        "db_password": "***",
        "n": 1,
    }


def test_the_closest_name() -> None:
    assert closest("STATS", ["status", "list"]) == "status"
    assert closest("zzz", ["status", "list"]) is None
    assert closest("x", []) is None


def test_pieces_of_one_line_are_one_line() -> None:
    stream = io.StringIO()
    printer = LogPrinter(stream)
    for text in ("a\nbegin", "ning ", "end\nb\nla", "st"):
        printer.write("w", 0, 0, text)
    printer.write("w", 0, 1, "again")
    printer.write("w", 1, 0, "other\n")
    printer.finish()
    lines = ["w/0 a", "w/0 beginning end", "w/0 b", "w/0 last", "w/0 again", "w/1 other", ""]
    assert stream.getvalue() == "\n".join(lines)
