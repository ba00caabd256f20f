"""``torchx runopts --resolved``: values of options, and where they come from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".torchxconfig"
    path.write_text("# ours\n[local_cwd]\nlog_dir = /logs\n\n[remote]\nteam=blue\n")
    return path


def rows(text: str, scheduler: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(text)[scheduler]}


def test_every_option_tells_where_its_value_comes_from(
    call: Call, remote: Any, config: Path
) -> None:
    done = call("runopts", "--resolved", "--json", "-cfg", "queue=fast", "remote")
    assert done.code == 0
    assert rows(done.out, "remote") == {
        "queue": {"name": "queue", "value": "fast", "origin": "flag", "where": "-cfg"},
        "team": {"name": "team", "value": "blue", "origin": "file", "where": f"{config}:6"},
    }
    text = call("runopts", "--resolved", "remote").out
    assert f"team    blue   file {config}:6" in text
    assert "queue   main   default" in text


def test_a_required_option_that_nothing_sets_is_unset(
    call: Call, remote: Any, config: Path
) -> None:
    config.write_text("")
    found = rows(call("runopts", "--resolved", "--json", "remote").out, "remote")
    assert found["team"]["origin"] == "unset"


def test_the_environment_names_parameters_and_the_file(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_CACHE_SIZE", "7")
    monkeypatch.setenv("TORCHXCONFIG", str(config))
    found = rows(call("runopts", "--resolved", "--json", "local_cwd").out, "local_cwd")
    assert found["log_dir"]["where"] == f"{config}:3 (TORCHXCONFIG)"
    assert found["cache_size"]["origin"] == "environment"
    assert found["cache_size"]["where"] == "TORCHX_CACHE_SIZE"
    assert found["prepend_cwd"]["origin"] == "default"


def test_what_stands_in_the_default_section_is_found_there(call: Call, config: Path) -> None:
    config.write_text("[DEFAULT]\nlog_dir = /all\n[local_cwd]\nprepend_cwd = True\n")
    found = rows(call("runopts", "--resolved", "--json", "local_cwd").out, "local_cwd")
    assert found["log_dir"]["where"] == f"{config}:2"
    assert found["prepend_cwd"]["where"] == f"{config}:4"


@pytest.mark.parametrize(
    ("words", "told"),
    [([], "name a scheduler"), (["nosuch"], "unknown scheduler `nosuch`")],
)
def test_bad_input(
    call: Call, words: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = call("runopts", "--resolved", *words)
    assert done.code == 2
    assert told in done.err + caplog.text


def test_a_value_that_does_not_fit_names_its_line(
    call: Call, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config.write_text("[local_cwd]\ngrace_s = soon\n")
    assert call("runopts", "--resolved", "local_cwd").code == 2
    assert f"{config}, line 2: option `grace_s`" in caplog.text
