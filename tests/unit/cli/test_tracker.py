"""``torchx tracker``."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.cli.cmd_tracker import CmdTracker
from torchx.tracker.api import TrackerBase
from torchx.tracker.backend.fsspec import create

Call = Callable[..., Any]
PARENT, CHILD = "local_cwd://torchx/prep", "local_cwd://torchx/train"


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "runs").mkdir()
    path = tmp_path / "trk.conf"
    path.write_text(f"protocol=file\nroot_path={tmp_path}/runs\n")
    return str(path)


@pytest.fixture
def filled(conf: str) -> TrackerBase:
    Path(".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nconfig={conf}\n"
    )
    tracker = create(conf)
    tracker.add_metadata(PARENT, rows=10)
    tracker.add_metadata(CHILD, lr=0.1, note="a b")
    tracker.add_artifact(CHILD, "m", "/p", {"k": 1})
    tracker.add_artifact(CHILD, "n", "/q")
    tracker.add_source(CHILD, PARENT, "data")
    return tracker


@pytest.mark.usefixtures("filled")
def test_jobs_are_listed(call: Call) -> None:
    result = call("tracker", "list", "jobs")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "JOB ID"
    assert sorted(lines[2:]) == [PARENT, CHILD]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("flag", ["--parent-run-id", "--parent_run_id"])
def test_jobs_of_a_parent_are_listed(call: Call, flag: str) -> None:
    result = call("tracker", "list", "jobs", flag, PARENT, "--json")
    assert json.loads(result.out) == [{"run_id": CHILD}]
    assert call("tracker", "list", "jobs", flag, "nope").out.splitlines()[2:] == []


@pytest.mark.usefixtures("filled")
def test_metadata_is_listed(call: Call) -> None:
    out = call("tracker", "list", "metadata", CHILD).out
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        ["ID", "VALUE"],
        ["----", "-----"],
        ["lr", "0.1"],
        ["note", "a b"],
    ]
    as_json = call("tracker", "list", "metadata", CHILD, "--json").out
    assert json.loads(as_json) == {"lr": 0.1, "note": "a b"}


@pytest.mark.usefixtures("filled")
def test_artifacts_are_listed(call: Call) -> None:
    out = call("tracker", "list", "artifacts", CHILD).out
    assert out.splitlines()[0].split() == ["ARTIFACT", "PATH", "METADATA"]
    assert len(out.splitlines()) == 4
    one = call("tracker", "list", "artifacts", "--artifact", "m", CHILD, "--json")
    assert json.loads(one.out) == [{"name": "m", "path": "/p", "metadata": {"k": 1}}]


@pytest.mark.usefixtures("filled")
def test_sources_and_lineage_are_listed(call: Call) -> None:
    out = call("tracker", "list", "sources", CHILD).out
    assert out.splitlines()[2].split() == [PARENT, "data"]
    lineage = call("tracker", "list", "lineage", PARENT, "--json").out
    assert json.loads(lineage) == [{"relation": "descendant", "run_id": CHILD, "artifact": "data"}]
    only = call("tracker", "list", "lineage", PARENT, "--sources-only", "--json").out
    assert json.loads(only) == []


@pytest.mark.usefixtures("filled")
def test_an_unknown_run_gives_an_empty_table(call: Call) -> None:
    for kind in ("metadata", "artifacts", "sources", "lineage"):
        result = call("tracker", "list", kind, "nope")
        assert (result.code, len(result.out.splitlines())) == (0, 2)


@pytest.mark.parametrize("argv", [("tracker",), ("tracker", "list")])
def test_without_an_action_help_is_shown(call: Call, argv: tuple[str, ...]) -> None:
    result = call(*argv)
    assert result.code == 1
    assert "usage: torchx tracker" in result.out


@pytest.mark.parametrize(
    "argv", [("list", "lineage"), ("list", "metadata"), ("list", "nope"), ("nope",)]
)
def test_bad_usage_ends_with_2(call: Call, argv: tuple[str, ...]) -> None:
    assert call("tracker", *argv).code == 2


def test_without_a_tracker_one_line_says_what_to_do(torchx: Call) -> None:
    result = torchx("tracker", "list", "jobs")
    assert result.code == 2
    assert "No trackers configured" in result.err
    assert "Traceback" not in result.err
    assert json.loads(torchx("tracker", "list", "jobs", "--json").out)["error"]["type"]


@pytest.mark.usefixtures("filled")
def test_a_tracker_is_chosen_by_name(torchx: Call) -> None:
    assert torchx("tracker", "list", "jobs", "--tracker", "fsspec").code == 0
    result = torchx("tracker", "list", "jobs", "--tracker", "other")
    assert result.code == 2
    assert "`other` is not configured; configured are: fsspec" in result.err


def test_a_config_that_is_not_there_is_one_line(torchx: Call) -> None:
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nconfig=/no/such.conf\n"
    )
    result = torchx("tracker", "list", "jobs")
    assert result.code == 1
    assert "`/no/such.conf` does not exist" in result.err
    assert "Traceback" not in result.err


@pytest.mark.usefixtures("filled")
def test_an_alias_names_its_plugin(call: Call, conf: str) -> None:
    Path(".torchxconfig").write_text(
        f"[torchx:tracker]\nmine=fsspec\n[tracker:mine]\nconfig={conf}\n"
    )
    assert PARENT in call("tracker", "list", "jobs").out


def test_the_command_works_on_a_bare_parser(
    filled: TrackerBase, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    class Spy:
        def run_ids(self, **kwargs: object) -> list[str]:
            calls.append(kwargs)
            return ["x"]

    monkeypatch.setattr("torchx.cli.cmd_tracker.get_configured_trackers", lambda: {"spy": "c"})
    monkeypatch.setattr("torchx.cli.cmd_tracker.build_trackers", lambda configured: [Spy()])
    command, parser = CmdTracker(), argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["list", "jobs", "--parent-run-id", "p"])
    args.func(args)
    assert calls == [{"parent_run_id": "p"}]
    assert capsys.readouterr().out.splitlines() == ["JOB ID", "------", "x"]
