"""Where the component begins, what it is given, and the same from JSON."""

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.cli._run_args import check_component_args, component_start, repeated_options
from torchx.cli.cmd_run import (
    CmdRun,
    TorchXRunArgs,
    _parse_component_name_and_args,
    torchx_run_args_from_argparse,
    torchx_run_args_from_json,
)
from torchx.specs import AppDef

CONFIGURED = "[cli:run]\ncomponent = c.e\n"


def parse(tokens: list[str], config: str | None = None) -> tuple[str, list[str]]:
    folder = Path("config-dir")
    folder.mkdir(exist_ok=True)
    (folder / ".torchxconfig").write_text(config or "")
    return _parse_component_name_and_args(tokens, argparse.ArgumentParser(), [str(folder)])


@pytest.mark.parametrize("config", [None, CONFIGURED])
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["utils.echo"], ("utils.echo", [])),
        (["--", "utils.echo"], ("utils.echo", [])),
        (["utils.echo", "--msg", "hi"], ("utils.echo", ["--msg", "hi"])),
        (["u.e", "--msg", "hi", "--", "--"], ("u.e", ["--msg", "hi", "--", "--"])),
        (["u.e", "--msg", "hi", "-", "-"], ("u.e", ["--msg", "hi", "-", "-"])),
        (["u.e", "-  ", "-  "], ("u.e", ["-  ", "-  "])),
        (
            ["x.y", "--img", "a", "-m", "b", "--", "-m"],
            ("x.y", ["--img", "a", "-m", "b", "--", "-m"]),
        ),
        (["c.e", "--msg=a", "--msg=b"], ("c.e", ["--msg=a", "--msg=b"])),
        (["u.sh", "echo", "-1", "-1"], ("u.sh", ["echo", "-1", "-1"])),
        (["u.sh", "--", "echo", "-n", "-n"], ("u.sh", ["--", "echo", "-n", "-n"])),
    ],
)
def test_the_component_is_the_first_word(
    tokens: list[str], expected: tuple[str, list[str]], config: str | None
) -> None:
    before = list(tokens)
    assert parse(tokens, config) == expected
    assert tokens == before


@pytest.mark.parametrize(
    ("tokens", "args"),
    [
        ([], []),
        (["--"], []),
        (["--msg", "hi"], ["--msg", "hi"]),
        (["--", "--msg", "hi"], ["--msg", "hi"]),
        (["-m", "hi"], ["-m", "hi"]),
    ],
)
def test_without_one_the_component_of_the_config_is_used(
    tokens: list[str], args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(tokens, CONFIGURED) == ("c.e", args)
    with pytest.raises(SystemExit) as ended:
        parse(tokens)
    assert ended.value.code == 2
    assert "missing component name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "tokens", [["c.e", "-m", "a", "-m", "b"], ["c.e", "--msg", "a", "--msg", "b"]]
)
@pytest.mark.parametrize("config", [None, CONFIGURED])
def test_a_repeated_option_is_usage(
    tokens: list[str], config: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(tokens, config)
    assert ended.value.code == 2
    assert str([tokens[1]]) in capsys.readouterr().err


words = st.one_of(
    st.sampled_from(["-", "--", "-m", "--msg", "-1", "-1.5", "--msg=a", "x", "é", "a b", ""]),
    st.text(max_size=8),
)


@settings(deadline=None)  # machines may be busy
@given(st.lists(words, max_size=8), st.sampled_from(["utils.echo", "./f.py:fn", "a.b:c"]))
def test_what_follows_the_component_reaches_it_unchanged(args: list[str], name: str) -> None:
    for lead in ([], ["--"]):
        tokens = [*lead, name, *args]
        if repeated_options(args):
            with pytest.raises(SystemExit) as ended:
                _parse_component_name_and_args(tokens, argparse.ArgumentParser())
            assert ended.value.code == 2
        else:
            parsed = _parse_component_name_and_args(tokens, argparse.ArgumentParser())
            assert parsed == (name, args)


@settings(deadline=None)  # machines may be busy
@given(st.lists(words, max_size=8))
def test_only_options_before_the_first_dashes_count_as_repeated(args: list[str]) -> None:
    head = args[: args.index("--")] if "--" in args else args
    repeated = repeated_options(args)
    assert repeated == repeated_options(head)
    for option in repeated:
        assert option.startswith("-")
        assert head.count(option) > 1


FLAGS = {
    "-s": True,
    "--scheduler": True,
    "-cfg": True,
    "--scheduler_args": True,
    "--dryrun": False,
    "--workspace": True,
    "--help": False,
}


@pytest.mark.parametrize(
    ("tokens", "start"),
    [
        ([], 0),
        (["c", "--dryrun"], 0),
        (["--dryrun", "c"], 1),
        (["-s", "x", "c"], 2),
        (["-sx", "c"], 1),
        (["--scheduler=x", "c"], 1),
        (["-cfg", "a=b", "c"], 2),
        (["-cfg=a=b", "c"], 1),
        (["-c", "a=b", "c"], 2),
        (["--work", "w", "c"], 2),
        (["--dry", "c"], 1),
        (["--sched", "x", "c"], 2),
        (["--", "--dryrun"], 0),
        (["--dryrun", "--", "--msg"], 1),
        (["--unknown", "c"], 1),
        (["-s"], 2),
    ],
)
def test_where_the_component_begins(tokens: list[str], start: int) -> None:
    assert min(component_start(tokens, FLAGS, lambda: None), len(tokens)) == min(start, len(tokens))


def test_with_a_configured_component_a_foreign_option_is_the_components() -> None:
    assert component_start(["--dryrun", "--msg", "hi"], FLAGS, lambda: "c.e") == 1
    assert component_start(["-m", "hi"], FLAGS, lambda: "c.e") == 0


def run_parser() -> tuple[CmdRun, argparse.ArgumentParser]:
    cmd, parser = CmdRun(), argparse.ArgumentParser()
    cmd.add_arguments(parser)
    return cmd, parser


def test_options_behind_the_component_are_never_ours() -> None:
    _, parser = run_parser()
    args = parser.parse_args(["--dryrun", "c.py:f", "--s", "x", "--wait", "--h", "-cfg", "q"])
    assert args.component_name_and_args == ["c.py:f", "--s", "x", "--wait", "--h", "-cfg", "q"]
    assert args.dryrun
    assert not args.wait
    assert args.scheduler_args is None


def test_abbreviations_of_the_wild() -> None:
    _, parser = run_parser()
    args = parser.parse_args(
        ["-s", "slurm", "-c", "queue=a,image_repo=b", "./d.py:ddp", "--debug", "x"]
    )
    assert (args.scheduler, args.scheduler_args) == ("slurm", "queue=a,image_repo=b")
    assert args.component_name_and_args == ["./d.py:ddp", "--debug", "x"]
    assert parser.parse_args(["-slocal_cwd", "u.e"]).scheduler == "local_cwd"
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--sched", "slurm", "u.e"])
    assert ended.value.code == 2


def test_the_default_scheduler_is_local_cwd_whatever_is_installed(
    install: Callable[..., None],
) -> None:
    install("torchx.schedulers", "acme", object)
    _, parser = run_parser()
    assert parser.parse_args(["u.e"]).scheduler == "local_cwd"
    assert parser.parse_args(["-s", "acme", "u.e"]).scheduler == "acme"
    Path(".torchxconfig").write_text("[cli:run]\nscheduler = slurm\n")
    from torchx.cli.argparse_util import torchxconfig

    torchxconfig._subcmd_configs.clear()
    _, parser = run_parser()
    assert parser.parse_args(["u.e"]).scheduler == "slurm"


JSON = {"component_name": "u.e", "scheduler": "local_cwd", "scheduler_args": {}}


def test_the_fields_of_a_run_have_defaults() -> None:
    args = torchx_run_args_from_json(JSON)
    assert args == TorchXRunArgs("u.e", "local_cwd", {}, workspace=str(Path.cwd()))
    assert torchx_run_args_from_json({**JSON, "workspace": "/w"}).workspace == "/w"


@pytest.mark.parametrize("missing", [["scheduler"], ["component_name", "scheduler_args"]])
def test_missing_fields_are_named(missing: list[str]) -> None:
    data = {key: value for key, value in JSON.items() if key not in missing}
    with pytest.raises(ValueError, match="missing") as raised:
        torchx_run_args_from_json(data)
    expected = f"The following required fields are missing: {', '.join(missing)}"
    assert str(raised.value) == expected


def test_unknown_fields_and_wrong_types_are_named() -> None:
    with pytest.raises(ValueError, match="not part of") as raised:
        torchx_run_args_from_json({**JSON, "dryrn": 1, "zzz": 2})
    text = raised.value.args[0]
    assert "The following fields are not part of the run command:" in text
    for word in ("dryrn", "zzz", "Did you mean `dryrun`?"):
        assert word in text
    with pytest.raises(ValueError, match="`wait` must be"):
        torchx_run_args_from_json({**JSON, "wait": "yes"})


def test_flags_become_the_fields_of_a_run() -> None:
    _, parser = run_parser()
    flags = ["--dryrun", "--wait", "--log", "--tee_logs", "--parent_run_id", "p", "--workspace", ""]
    args = torchx_run_args_from_argparse(parser.parse_args([*flags, "c"]), "c", ["-x"], {"k": 1})
    assert args == TorchXRunArgs(
        "c", "local_cwd", {}, {"k": 1}, True, True, True, "", "p", True, {}, ["-x"]
    )


def component(
    i: int,
    s: str = "",
    f: float = 0.0,
    b: bool = False,
    l: Optional[list[str]] = None,  # noqa: E741, UP045  the old spelling must work too
    d: dict[str, int] | None = None,
    a: Annotated[int, "-a"] = 1,
    *args: str,
) -> AppDef:
    raise AssertionError


@pytest.mark.parametrize(
    "given_args",
    [
        {"i": 1, "s": "x", "f": 1, "b": True, "l": ["a"], "d": {"k": 1}, "args": ["x"]},
        {"l": None, "d": None, "f": 1.5, "a": 3},
    ],
)
def test_typed_arguments_are_taken(given_args: dict[str, Any]) -> None:
    check_component_args(component, "c", given_args)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i", "1"),
        ("i", True),
        ("i", None),
        ("s", 1),
        ("b", "true"),
        ("l", "a,b"),
        ("l", [1]),
        ("d", {"k": "v"}),
        ("a", "x"),
        ("args", "x"),
        ("args", [1]),
    ],
)
def test_arguments_of_another_type_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"parameter `{name}` of component `c`"):
        check_component_args(component, "c", {name: value})


def test_unknown_arguments_are_refused() -> None:
    def other(message: str) -> AppDef:
        raise AssertionError

    with pytest.raises(ValueError, match=r"no parameter `mesage`.*Did you mean `message`\?"):
        check_component_args(other, "c", {"mesage": "x"})
    assert list(inspect.signature(other).parameters) == ["message"]
