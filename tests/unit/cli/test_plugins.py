"""``torchx plugins``, with entry points in place of installed packages."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from torchx.util import entrypoints

from .conftest import EntryPoint

Call = Callable[..., Any]


@pytest.fixture
def advertise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*points: EntryPoint) -> None:
        monkeypatch.setattr(
            entrypoints.metadata,
            "entry_points",
            lambda *, group: [point for point in points if point.group == group],
        )

    return install


def test_nothing_is_said_to_be_nothing(call: Call, advertise: Callable[..., None]) -> None:
    advertise()
    result = call("plugins", "--check")
    assert (result.code, result.out) == (0, "no plugins are installed\n")


def test_every_kind_and_every_failure_is_shown(call: Call, advertise: Callable[..., None]) -> None:
    advertise(
        EntryPoint("acme", "torchx.schedulers", lambda s: None),
        EntryPoint("trk", "torchx.tracker", ImportError("no acme_trk")),
        EntryPoint("comps", "torchx.components", ImportError("broken components")),
        EntryPoint("fn", "torchx.components", lambda: 5),
        EntryPoint("top", "torchx.cli.cmds", lambda: "not a command"),
        EntryPoint("gone", "torchx.cli.cmds", SystemExit(3)),
    )
    result = call("plugins", "--json", "--check")
    assert result.code == 1
    described = json.loads(result.out)
    assert [item["name"] for item in described["scheduler"]] == ["acme"]
    assert described["tracker"] == described["component"] == described["cli_command"] == []
    assert [(e["kind"], e["name"]) for e in described["errors"]] == [
        ("tracker", "trk"),
        ("component", "comps"),
        ("component", "fn"),
        ("cli_command", "top"),
        ("cli_command", "gone"),
    ]
    assert described["errors"][0]["error"] == "ImportError: no acme_trk"
    assert "must be a SubCommand class" in described["errors"][3]["error"]
    assert "must be a module or its name, got <class 'int'>" in described["errors"][2]["error"]
    assert "`sys.exit(3)`" in described["errors"][4]["error"]
    text = call("plugins").out
    assert "scheduler  acme" in text
    assert "5 left out:" in text
    assert "  tracker trk: acme: ImportError: no acme_trk" in text


def test_a_broken_command_is_named_when_it_is_called(
    call: Call, advertise: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    advertise(EntryPoint("top", "torchx.cli.cmds", ImportError("no acme")))
    result = call("top")
    assert result.code == 1
    assert "the command `top` of an unknown distribution cannot be loaded" in caplog.text
    assert "ImportError: no acme" in caplog.text
    assert call("builtins").code == 0
