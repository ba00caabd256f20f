"""Options that may be given once and have their default in the config."""

import argparse
from pathlib import Path

import pytest

from torchx.cli.argparse_util import (
    ArgOnceAction,
    torchxconfig,
    torchxconfig_list,
    torchxconfig_run,
)


def parser_with(
    action: type[argparse.Action] = torchxconfig_run, **kwargs: object
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workspace", "--buck-target", action=action, **kwargs)  # type: ignore[arg-type]  # whatever the test gives
    return parser


def config(text: str) -> None:
    Path(".torchxconfig").write_text(text)


def test_the_command_line_beats_the_config_which_beats_the_default() -> None:
    config("[cli:run]\nworkspace = from-config\n")
    parser = parser_with(default="built-in")
    assert parser.parse_args([]).workspace == "from-config"
    assert parser.parse_args(["--workspace", "given"]).workspace == "given"
    assert parser_with(torchxconfig_list, default="built-in").parse_args([]).workspace == "built-in"


def test_a_default_makes_an_option_optional() -> None:
    with pytest.raises(SystemExit):
        parser_with(required=True).parse_args([])
    torchxconfig._subcmd_configs.clear()
    config("[cli:run]\nworkspace = w\n")
    assert parser_with(required=True).parse_args([]).workspace == "w"
    assert parser_with(required=True, default="d").parse_args([]).workspace == "w"


def test_the_key_is_the_dest_and_no_alias() -> None:
    config("[cli:run]\nbuck-target = w\n")
    assert parser_with().parse_args([]).workspace is None


def test_the_section_is_read_once_until_the_memory_is_cleared() -> None:
    config("[cli:run]\nworkspace = old\n")
    assert parser_with().parse_args([]).workspace == "old"
    config("[cli:run]\nworkspace = new\n")
    assert parser_with().parse_args([]).workspace == "old"
    torchxconfig._subcmd_configs.clear()
    assert parser_with().parse_args([]).workspace == "new"
    torchxconfig._subcmd_configs["run"] = {"workspace": "put there"}
    assert parser_with().parse_args([]).workspace == "put there"


def test_config_values_are_converted_and_not_checked_against_choices() -> None:
    config("[cli:run]\nworkspace = 7\n")
    assert parser_with(type=int).parse_args([]).workspace == 7
    assert parser_with(choices=["a"]).parse_args([]).workspace == "7"


@pytest.mark.parametrize("action", [ArgOnceAction, torchxconfig_run])
def test_an_option_given_twice_ends_the_command(
    action: type[argparse.Action], caplog: pytest.LogCaptureFixture
) -> None:
    parser = parser_with(action)
    for _ in range(2):  # nothing leaks into the next parse
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(["--workspace", "a", "--workspace", "b"])
        assert ended.value.code == 2
        assert "--workspace" in caplog.text
        caplog.clear()
        assert vars(parser.parse_args(["--workspace", "a"])) == {"workspace": "a"}


def test_two_spellings_of_an_option_are_not_a_repetition() -> None:
    args = parser_with(ArgOnceAction).parse_args(["--workspace", "a", "--buck-target", "b"])
    assert args.workspace == "b"


def test_any_command_may_have_a_section() -> None:
    config("[cli:other]\nx = 1\n")
    parser = argparse.ArgumentParser()
    parser.register("action", "other", lambda **kwargs: torchxconfig("other", **kwargs))
    parser.add_argument("--x", action="other")
    assert parser.parse_args([]).x == "1"
