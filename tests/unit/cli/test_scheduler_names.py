"""Other names of schedulers in flags, configs and handles."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_scheduler_may_be_named_by_its_other_name(
    torchx: Callable[..., Any], tmp_path: Path
) -> None:
    done = torchx("run", "-s", "local", "utils.echo", "--msg", "hi")
    handle = done.out.strip()
    assert handle.startswith("local_cwd://")
    assert "deprecated" not in done.err
    other = handle.replace("local_cwd://", "local://")
    assert torchx("status", "--json", other).code == 0
    assert torchx("log", other).out == "echo/0 hi\n"
    assert handle in torchx("list", "-s", "local").out
    assert torchx("run", "-s", "local", "--dryrun", "utils.echo").code == 0


@pytest.mark.parametrize(
    ("name", "registered"), [("local", "local_cwd"), ("docker", "local_docker")]
)
def test_options_and_templates_under_another_name(
    call: Callable[..., Any], name: str, registered: str
) -> None:
    assert json.loads(call("runopts", "--json", name).out).keys() == {registered}
    assert call("configure", "--print", "--all", "-s", name).out.startswith(f"[{registered}]")


def test_the_default_of_the_config_may_be_another_name(
    torchx: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "[cli:run]\nscheduler = local\n[cli:list]\nscheduler = local\n"
    )
    monkeypatch.setenv("TORCHXCONFIG", str(tmp_path / "config"))
    handle = torchx("run", "utils.echo", "--msg", "hi").out.strip()
    assert handle.startswith("local_cwd://")
    assert handle in torchx("list").out


def test_names_that_are_shown_are_those_that_schedulers_have(call: Callable[..., Any]) -> None:
    refused = call("run", "-s", "nope", "utils.echo")
    assert refused.code == 2
    assert "'local_cwd'" in refused.err
    assert "'docker'" not in refused.err


# -- names that there are not ---------------------------------------------------------------------


def test_of_several_schedulers_the_wrong_one_is_named(call: Callable[..., Any]) -> None:
    refused = call("run", "--dryrun", "-s", "local_cwd,slrum", "utils.echo")
    assert refused.code == 2
    assert "invalid choice: 'slrum'" in refused.err
    assert refused.err.endswith("Did you mean `slurm`?\n")


def test_a_name_of_the_command_line_is_not_said_to_be_in_a_config(
    call: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert call("doctor", "-s", "local_cwd,slrum").code == 2
    assert caplog.messages[-1].startswith("unknown scheduler `slrum`; choose from local_cwd, ")
    assert caplog.messages[-1].endswith("Did you mean `slurm`?")


def test_a_name_of_a_config_is_said_to_be_in_it(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".torchxconfig").write_text("[cli:list]\nscheduler = slrum\n")
    refused = call("list", "--json")
    assert refused.code == 2
    told = json.loads(refused.out)["error"]["message"]
    assert "[cli:list]" in told
    assert "Did you mean `slurm`?" in told


def test_a_command_that_is_spelt_wrong(call: Callable[..., Any]) -> None:
    refused = call("runn", "utils.echo")
    assert refused.code == 2
    assert refused.err.endswith("Did you mean `run`?\n")
