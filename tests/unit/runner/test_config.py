"""``.torchxconfig``: which files are read, what wins, and what is said of a broken one."""

import io
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.runner.fakes import FakeScheduler
from torchx.runner import config
from torchx.runner.config import (
    ConfigFileError,
    apply,
    dump,
    find_configs,
    get_config,
    get_configs,
    load,
    load_sections,
)
from torchx.specs import CfgVal, InvalidRunConfigException, runopts

LONG_TEXT = "a very long help text that " + "goes on " * 9


class Typed(FakeScheduler):
    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("req", type_=str, required=True, help=LONG_TEXT)
        opts.add("log_dir", type_=str, help="logs")
        opts.add("n_gpus", type_=int, default=1, help="gpus")
        opts.add("ratio", type_=float, default=0.5, help="ratio")
        opts.add("fast", type_=bool, default=False, help="fast")
        opts.add("l", type_=list[str], default=["a", "b"], help="list")
        opts.add("d", type_=dict[str, str], default={"a": "b", "c": "d"}, help="dict")
        opts.add("b.x", type_=int, default=3, help="nested")
        return opts


@pytest.fixture(autouse=True)
def _schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchx.runner.config.get_scheduler_factories", lambda: {"t": Typed, "fake": FakeScheduler}
    )


def loaded(text: str, cfg: Mapping[str, CfgVal] | None = None, name: str = "t") -> dict[str, Any]:
    result = dict(cfg or {})
    load(name, io.StringIO(text), result)
    return result


# -- which files ------------------------------------------------------------------------------


def test_home_comes_before_the_working_directory() -> None:
    home, here = Path.home() / ".torchxconfig", Path.cwd() / ".torchxconfig"
    assert find_configs() == []
    here.write_text("")
    assert find_configs() == [str(here)]
    home.write_text("")
    assert find_configs() == [str(home), str(here)]


def test_the_working_directory_is_that_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".torchxconfig").write_text("")
    monkeypatch.chdir(tmp_path)
    assert find_configs() == [str(tmp_path / ".torchxconfig")]


def test_a_working_directory_that_was_removed_holds_no_file(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert find_configs() == []


def test_given_directories_replace_the_default_ones(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".torchxconfig").write_text("")
    Path(".torchxconfig").write_text("")
    dirs = [str(tmp_path / n) for n in ("b", "none", "a")]
    assert find_configs(dirs) == [f"{dirs[0]}/.torchxconfig", f"{dirs[2]}/.torchxconfig"]
    assert find_configs(iter(dirs)) == find_configs(dirs)
    assert find_configs([]) == find_configs()


def test_clients_may_replace_the_default_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".torchxconfig").write_text("")
    monkeypatch.setattr(config, "DEFAULT_CONFIG_DIRS", [str(tmp_path)])
    assert find_configs() == [str(tmp_path / ".torchxconfig")]


def test_a_named_file_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".torchxconfig").write_text("")
    named = tmp_path / "mine"
    named.write_text("")
    monkeypatch.setenv("TORCHXCONFIG", str(named))
    assert find_configs() == find_configs(["."]) == [str(named)]
    monkeypatch.setenv("TORCHXCONFIG", "")
    assert find_configs() == []
    monkeypatch.setenv("TORCHXCONFIG", "/no/such")
    message = "`TORCHXCONFIG=/no/such` does not exist or is not a file."
    with pytest.raises(FileNotFoundError, match=message):
        find_configs()


# -- options of schedulers --------------------------------------------------------------------


def test_values_are_read_like_those_of_the_command_line() -> None:
    text = "[t]\nlog_dir = /x\nn_gpus=2\nratio=1\nfast=yes\nl=x;y\nd=k:v\nb.x=4\nreq=None\n"
    assert loaded(text) == {
        "log_dir": "/x",
        "n_gpus": 2,
        "ratio": 1.0,
        "fast": True,
        "l": ["x", "y"],
        "d": {"k": "v"},
        "b.x": 4,
        "req": None,
    }


def test_what_is_given_wins_under_any_spelling_and_is_not_even_read() -> None:
    assert loaded("[t]\nn_gpus = many\n", {"n_gpus": 7}) == {"n_gpus": 7}
    assert loaded("[t]\nn_gpus = many\n", {"nGpus": 7}) == {"nGpus": 7}
    assert loaded("[t]\nlog_dir = x\n", {"log_dir": None}) == {"log_dir": None}


def test_camel_case_is_stored_under_the_registered_name() -> None:
    assert loaded("[t]\nnGpus = 2\nlogDir = /x\n") == {"n_gpus": 2, "log_dir": "/x"}
    assert loaded("[t]\nnGpus = 2\nn_gpus = 2\n") == {"n_gpus": 2}
    with pytest.raises(InvalidRunConfigException, match=r"line 3.*also spelled `nGpus`") as err:
        loaded("[t]\nnGpus = 2\nn_gpus = 3\n")
    assert err.value.cfg_key == "n_gpus"


def test_an_unknown_option_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert loaded("[t]\nn_gpu = 2\n") == {}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for part in ("n_gpu", "`2`", "[t]", "line 2", "Did you mean `n_gpus`?"):
        assert part in record.getMessage()


def test_defaults_of_the_file_go_where_they_fit(caplog: pytest.LogCaptureFixture) -> None:
    assert loaded("[DEFAULT]\nlog_dir=/d\nqueue=q\n[t]\n") == {"log_dir": "/d"}
    assert caplog.records == []


def test_other_sections_are_left_alone() -> None:
    assert loaded("[fake]\nqueue = q\n") == {}
    assert loaded("") == {}


def test_a_value_of_the_wrong_type_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / ".torchxconfig"
    path.write_text("[other]\nn_gpus=1\n[t]\n# n_gpus = 1\nn_gpus: many\n")
    with pytest.raises(ValueError, match="`many` is not of type int") as err:
        apply("t", {}, [str(tmp_path)])
    assert f"{path}, line 5: option `n_gpus` of section [t]" in str(err.value)


def test_a_percent_sign_is_a_value_like_any_other() -> None:
    assert loaded("[t]\nlog_dir = /x%Y/%(a)s\n") == {"log_dir": "/x%Y/%(a)s"}
    assert loaded("[t]\nlog_dir = /x%%Y\n") == {"log_dir": "/x%Y"}


def test_an_unknown_scheduler_is_refused_with_the_valid_names() -> None:
    message = "`no` is not a registered scheduler. Valid scheduler names: t, fake"
    for text in ("[no]\na = 1\n", ""):
        with pytest.raises(ValueError, match=message):
            loaded(text, name="no")


def test_a_factory_that_makes_no_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "get_scheduler_factories", lambda: {"t": lambda session_name: 3})
    with pytest.raises(AssertionError):
        loaded("[t]\na = 1\n")


def test_the_first_file_wins_option_by_option(tmp_path: Path) -> None:
    Path.home().joinpath(".torchxconfig").write_text("[t]\nlog_dir = /home\n")
    Path(".torchxconfig").write_text("[t]\nlog_dir = /here\nn_gpus = 5\nl = x\n")
    cfg: dict[str, CfgVal] = {"l": ["given"]}
    apply("t", cfg)
    assert cfg == {"l": ["given"], "log_dir": "/home", "n_gpus": 5}


# -- broken files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a = 1\n", 1, "`a = 1` is before any section"),
        ("[t]\na = 1\na = 2\n", 3, "option `a` is set twice in section [t]"),
        ("[t]\n[u]\n[t]\n", 3, "section [t] occurs twice"),
        ("[t]\njust words\n", 2, "neither a section nor `key = value`"),
        ("[t\na = 1\n", 1, "`[t` is before any section"),
    ],
)
def test_a_broken_file_is_named_with_line_and_reason(text: str, line: int, reason: str) -> None:
    path = Path.cwd() / ".torchxconfig"
    path.write_text(text)
    for read in (lambda: load_sections("cli"), lambda: apply("t", {})):
        with pytest.raises(ConfigFileError) as err:
            read()
        assert str(err.value).startswith(f"{path}, line {line}: {reason}")


def test_a_file_that_is_no_text_is_named() -> None:
    Path(".torchxconfig").write_bytes(b"[t]\nlog_dir = \xff\n")
    with pytest.raises(ConfigFileError, match=r"cannot read config file `.*\.torchxconfig`"):
        load_sections("cli")


# -- other sections ---------------------------------------------------------------------------


def test_sections_are_merged_key_by_key_the_first_file_winning() -> None:
    Path.home().joinpath(".torchxconfig").write_text(
        "[component:dist.ddp]\nj = 1x2\n[component:]\nx=1\n[:x]\ny=1\n[a:b:c]\nk=v\n"
    )
    Path(".torchxconfig").write_text("[component:dist.ddp]\nj = 9x9\nenv = A=B,C=D\n[cli:run]\ns=1")
    assert load_sections("component") == {"dist.ddp": {"j": "1x2", "env": "A=B,C=D"}}
    assert load_sections("a") == {"b:c": {"k": "v"}}
    assert load_sections("") == {}
    assert load_sections("none") == {}
    assert get_configs("cli", "run") == {"s": "1"}
    assert get_configs("cli", "list") == {}
    assert get_config("component", "dist.ddp", "j") == "1x2"
    assert get_config("component", "dist.ddp", "J") is None
    assert get_config("component", "none", "j") is None


def test_a_value_may_span_lines() -> None:
    Path(".torchxconfig").write_text("[cli:run]\nworkspace =\n    /a: b\n    /c: d\n")
    assert get_config("cli", "run", "workspace") == "\n/a: b\n/c: d"


# -- templates --------------------------------------------------------------------------------


def dumped(*schedulers: str, required_only: bool = False) -> str:
    out = io.StringIO()
    dump(out, list(schedulers) or None, required_only)
    return out.getvalue()


def test_a_template_shows_every_option() -> None:
    assert dumped("t") == (
        "[t]\n"
        "req = #FIXME:(str) a very long help text that goes on goes on goes...\n"
        "log_dir = None\n"
        "n_gpus = 1\n"
        "ratio = 0.5\n"
        "fast = False\n"
        "l = a;b\n"
        "d = a:b;c:d\n"
        "b.x = 3\n"
        "\n"
    )
    assert dumped() == dumped("t") + "[fake]\nqueue = main\ntags = None\n\n"
    assert dumped("t", required_only=True).count("\n") == 3


def test_a_template_loads_back_as_the_defaults(caplog: pytest.LogCaptureFixture) -> None:
    defaults = {key: opt.default for key, opt in Typed("s").run_opts() if not opt.is_required}
    assert loaded(dumped("t")) == defaults
    assert "option `req` of section [t] is still to be filled in" in caplog.text


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1))
@example("#FIXME:(")
def test_any_text_can_be_written_and_read(text: str) -> None:
    class One(FakeScheduler):
        def _run_opts(self) -> runopts:
            opts = runopts()
            opts.add("o", type_=str, default=text, help="o")
            return opts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "get_scheduler_factories", lambda: {"one": One})
        assert loaded(dumped("one"), name="one") == {"o": None if text == "None" else text}


def test_nothing_is_written_for_an_unknown_scheduler() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="`no` is not a registered scheduler"):
        dump(out, ["t", "no"])
    assert out.getvalue() == ""


def test_a_scheduler_that_cannot_be_imported_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(session_name: str) -> FakeScheduler:
        raise ModuleNotFoundError("no sdk")

    monkeypatch.setattr(
        config, "get_scheduler_factories", lambda: {"broken": broken, "fake": FakeScheduler}
    )
    assert dumped().startswith("[fake]\n")
    assert "scheduler `broken` is left out, it cannot be loaded: no sdk" in caplog.text


def test_a_section_that_is_nearly_the_name_of_a_scheduler_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert loaded("[fkae]\nlog_dir = /x\n[docer]\nx = 1\n[t]\nlog_dir = /y\n") == {"log_dir": "/y"}
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == 2
    assert "section [fkae] is ignored" in found[0]
    assert "Did you mean [fake]?" in found[0]
    assert "Did you mean [docker]?" in found[1]


def test_sections_of_commands_trackers_and_plugins_are_no_misspelt_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loaded("[cli:run]\na = 1\n[torchx:tracker]\nx = 1\n[docker]\nx = 1\n[acme_settings]\nx = 1\n")
    assert caplog.records == []
