"""The output of every command with ``--json`` is what the published schema says, and no more."""

import copy
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from torchx.cli.main import COMMANDS, get_default_sub_cmds
from torchx.schedulers.causes import Cause
from torchx.schedulers.checkups import Verdict
from torchx.specs import AppState
from torchx.tracker.backend.fsspec import FsspecTracker

SCHEMA = json.loads(resources.files("torchx.cli").joinpath("output.schema.json").read_text())


def closed(node: Any) -> Any:
    """The schema with no keys allowed but those that it names."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: closed(value) for key, value in node.items()}
    if node.get("type") == "object" and "properties" in node:
        found.setdefault("additionalProperties", False)
    return found


STRICT = closed(copy.deepcopy(SCHEMA))


def check(name: str, text: str) -> Any:
    """The document, which must be as the schema says."""
    data = json.loads(text)
    rules = {"$ref": f"#/$defs/{name}", "$defs": STRICT["$defs"]}
    errors = [error.message for error in Draft202012Validator(rules).iter_errors(data)]
    assert errors == []
    return data


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_command_with_json_is_in_it() -> None:
    import argparse

    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        get_default_sub_cmds()[name].add_arguments(parser)
        if "--json" in parser._option_string_actions:
            assert name in SCHEMA["$defs"], f"add the output of `{name}` to output.schema.json"


def test_lists_of_words_are_whole() -> None:
    defs = SCHEMA["$defs"]
    assert defs["why"]["properties"]["cause"]["enum"] == [cause.value for cause in Cause]
    assert set(defs["status"]["properties"]["state"]["enum"]) == set(AppState.__members__)
    verdicts = defs["doctor"]["properties"]["checks"]["items"]["properties"]["verdict"]
    assert verdicts["enum"] == [verdict.value for verdict in Verdict]


@pytest.fixture
def handle(call: Callable[..., Any], component_file: Path) -> str:
    """Of a job that failed."""
    script = "import sys; print(1); raise ValueError('no')"
    done = call("run", "--json", f"{component_file}:sh", "--cmd", f'python3 -c "{script}"')
    return str(check("run", done.out)["handle"])


def test_commands_about_a_job(call: Callable[..., Any], handle: str) -> None:
    assert check("status", call("status", "--json", handle).out)["state"] == "FAILED"
    assert check("why", call("why", "--json", handle).out)["cause"] == "app-error"
    check("describe", call("describe", "--json", handle).out)
    assert len(check("list", call("list", "--json").out)) == 1
    for line in call("log", "--json", handle).out.splitlines():
        check("log", line)
    assert check("log_verify", call("log", "--verify", "--json", handle).out)
    check("cancel", call("cancel", "--json", handle).out)
    assert check("delete", call("delete", "--json", handle).out)["state"] is None


def test_several_apps_at_once(call: Callable[..., Any], handle: str) -> None:
    check("prune", call("prune", "--dryrun", "--json").out)
    ended, unknown = check("cancel_many", call("cancel", "--json", handle, f"{handle}-2").out)
    assert (ended["handle"], ended["acted"]) == (handle, False)
    assert unknown["state"] is None
    (gone,) = check("delete_many", call("delete", "--json", "--state", "FAILED", "--yes").out)
    assert (gone["handle"], gone["acted"]) == (handle, True)


def test_a_dry_run(call: Callable[..., Any]) -> None:
    check("run_dryrun", call("run", "--dryrun", "--json", "utils.echo").out)
    check("run_dryrun", call("run", "--dryrun", "--json", "-s", "lsf", "utils.echo").out)


def test_commands_about_torchx(call: Callable[..., Any]) -> None:
    assert check("builtins", call("builtins", "--json").out)["components"]
    check("builtins_print", call("builtins", "--json", "--print", "utils.echo").out)
    assert check("runopts", call("runopts", "--json").out)["local_cwd"]["options"]
    assert check("doctor", call("doctor", "--json").out)["checks"]
    check("plugins", call("plugins", "--json").out)
    check("configure", call("configure", "--json", "--print", "-s", "local_cwd").out)
    check("configure", call("configure", "--json", "-s", "local_cwd").out)


def test_trackers(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    tracker = FsspecTracker(LocalFileSystem(), str(tmp_path))
    tracker.add_metadata("a", loss=1.5)
    tracker.add_artifact("a", "model", "/m", {"k": "v"})
    tracker.add_source("b", "a", "model")
    config = Path(".torchxconfig")
    config.write_text(f"[torchx:tracker]\nfsspec =\n[tracker:fsspec]\nconfig = {tmp_path}/cfg\n")
    (tmp_path / "cfg").write_text(f"protocol=file\nroot_path={tmp_path}\n")
    for kind, run in [("jobs", []), ("metadata", ["a"]), ("artifacts", ["a"])]:
        check(f"tracker_{kind}", call("tracker", "list", kind, *run, "--json").out)
    for kind in ("sources", "lineage"):
        assert check(f"tracker_{kind}", call("tracker", "list", kind, "b", "--json").out)


@pytest.mark.parametrize(
    "argv",
    [
        ["status", "--json", "local_cwd://torchx/nope"],
        ["status", "--json", "nope"],
        ["run", "--json", "nope"],
        ["log", "--json", "--streams", "x", "a"],
        ["bogus", "--json"],
    ],
)
def test_errors(argv: list[str], call: Callable[..., Any]) -> None:
    result = call(*argv)
    assert result.code != 0
    check("error", result.out)


def test_launching_again(call: Callable[..., Any], handle: str) -> None:
    check("rerun", call("rerun", "--json", handle).out)
    shown = call("rerun", "--dryrun", "--env", "X=1", "--json", handle)
    assert check("rerun_dryrun", shown.out)["difference"] == ["+ work.env.X: 1"]


def test_schedulers_that_are_compared(call: Callable[..., Any]) -> None:
    words = ["run", "--dryrun", "--json", "--workspace=", "-s", "local_cwd,slurm", "utils.echo"]
    assert check("run_compared", call(*words).out)["local_cwd"]["dropped"]


def test_options_and_their_origins(call: Callable[..., Any]) -> None:
    check("runopts_resolved", call("runopts", "--resolved", "--json", "local_cwd").out)
