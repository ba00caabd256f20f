"""``torchx configure`` writes what is missing and destroys nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = Path(".torchxconfig")


def test_the_required_options_are_written(call: Callable[..., Any], remote: Any) -> None:
    assert call("configure", "-s", "remote").code == 0
    assert CONFIG.read_text() == "[remote]\nteam = #FIXME:(str) who pays\n"


def test_all_options_are_written(call: Callable[..., Any], remote: Any) -> None:
    assert call("configure", "--schedulers", "remote,local_cwd", "--all").code == 0
    text = CONFIG.read_text()
    assert "queue = main\n" in text
    assert "\n\n[local_cwd]\n" in text
    assert "detach = False\n" in text


def test_by_default_every_scheduler_that_can_be_loaded_is_written(
    call: Callable[..., Any], remote: Any
) -> None:
    for argv in ([], ["-s", ""]):
        CONFIG.unlink(missing_ok=True)
        assert call("configure", *argv).code == 0
        assert "[remote]" in CONFIG.read_text()
        assert "[local_cwd]" in CONFIG.read_text()


def test_print_writes_no_file(call: Callable[..., Any], remote: Any) -> None:
    result = call("configure", "--print", "-s", "remote")
    assert "[remote]\nteam = #FIXME" in result.out
    assert not CONFIG.exists()
    assert (
        "[remote]" in json.loads(call("configure", "--print", "--json", "-s", "remote").out)["text"]
    )


@pytest.mark.parametrize(
    "target", [AttributeError("no make"), SystemExit(7), lambda session_name, **kw: 5]
)
def test_a_broken_plugin_is_left_out(
    target: Any,
    call: Callable[..., Any],
    install: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("torchx.schedulers", "broken", target)
    result = call("configure", "--print")
    assert result.code == 0
    assert "[local_cwd]" in result.out
    assert "scheduler `broken` is left out, it cannot be loaded" in caplog.text


OLD = """\
# mine
[remote]
team = red
# a note

[cli:run]
component = utils.echo
"""


def test_a_section_is_replaced_only_by_force(
    call: Callable[..., Any], remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    CONFIG.write_text(OLD)
    assert call("configure", "-s", "remote").code == 1
    assert CONFIG.read_text() == OLD
    assert "[remote]" in caplog.text
    assert "--force" in caplog.text
    assert call("configure", "-s", "remote", "--force").code == 0
    assert CONFIG.read_text() == (
        "# mine\n\n[cli:run]\ncomponent = utils.echo\n\n[remote]\nteam = #FIXME:(str) who pays\n"
    )


def test_other_sections_stay_as_they_are(call: Callable[..., Any]) -> None:
    CONFIG.write_text(OLD)
    CONFIG.chmod(0o640)
    result = call("configure", "-s", "local_cwd", "-a", "--json")
    assert CONFIG.read_text().startswith(OLD)
    assert "[local_cwd]" in CONFIG.read_text()
    assert CONFIG.stat().st_mode & 0o777 == 0o640
    assert json.loads(result.out) == {"path": str(CONFIG.absolute()), "schedulers": ["local_cwd"]}


def test_a_link_stays_a_link(call: Callable[..., Any]) -> None:
    target = Path("elsewhere")
    target.write_text("")
    CONFIG.symlink_to(target)
    assert call("configure", "-s", "local_cwd", "-a").code == 0
    assert CONFIG.is_symlink()
    assert "[local_cwd]" in target.read_text()


def test_an_unknown_scheduler_changes_nothing(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    CONFIG.write_text(OLD)
    assert call("configure", "-s", "local_cw", "--force").code == 2
    assert CONFIG.read_text() == OLD
    assert "Valid scheduler names: local_cwd" in caplog.text
    assert "Did you mean `local_cwd`?" in caplog.text


def test_a_failing_write_leaves_the_file_and_no_scrap(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    CONFIG.write_text("[x]\na = 1\n")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", fail)
    assert call("configure", "-s", "local_cwd").code == 1
    assert CONFIG.read_text() == "[x]\na = 1\n"
    assert os.listdir() == [".torchxconfig"]


def test_a_folder_that_cannot_be_written_is_told(
    call: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert call("configure").code == 1
    assert ".torchxconfig cannot be written here: No such file or directory" in caplog.text
    assert "use --print" in caplog.text
    assert call("configure", "--print").code == 0
