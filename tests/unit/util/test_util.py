"""Small helpers that clients import: text to values, entry points, modules, sessions."""

import os
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchx
from torchx import deprecations, settings
from torchx.util import cuda, datetime, entrypoints, io, modules, session, shlex, strings
from torchx.util.types import (
    decode,
    decode_from_string,
    decode_optional,
    is_bool,
    is_primitive,
    none_throws,
    to_dict,
    to_list,
)

# -- types --------------------------------------------------------------------------------------


def test_lists_are_read():
    assert to_list("") == to_list("  ") == []
    assert to_list("a,,b ") == ["a", "", "b"]
    assert to_list("a;b") == ["a;b"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("FOO=v1", {"FOO": "v1"}),
        ("FOO=v1,v2", {"FOO": "v1,v2"}),
        ("FOO=v1;v2", {"FOO": "v1;v2"}),
        ("FOO=v1;v2,BAR=v3", {"FOO": "v1;v2", "BAR": "v3"}),
        ("FOO=v1;v2;BAR=v3", {"FOO": "v1;v2", "BAR": "v3"}),
        ("A = 1 , B = 2", {"A": "1", "B": "2"}),
        ("FOO=,", {"FOO": ","}),
        ("FOO=v1,v2;", {"FOO": "v1,v2;"}),
        ("key1=value1,,foo=bar", {"key1": "value1,", "foo": "bar"}),
        ("FOO=''", {"FOO": ""}),
        ('FOO=""', {"FOO": ""}),
        ('FOO="x = 1, y; z"', {"FOO": "x = 1, y; z"}),
        ("FOO=v3==", {"FOO": "v3"}),
        ("FOO=it's,BAR=1", {"FOO": "it's", "BAR": "1"}),
        ("FOO=__QUOTED_0__,BAR='a=b'", {"FOO": "__QUOTED_0__", "BAR": "a=b"}),
        ("FOO=-1,BAR=--x", {"FOO": "-1", "BAR": "--x"}),
        ("FOO=--x=1", {"FOO": "--x=1"}),
        ("FOO=--x=1 --y = 2,BAR=3", {"FOO": "--x=1 --y = 2", "BAR": "3"}),
        ("FOO=--x=a,b --y==;2;BAR=3", {"FOO": "--x=a,b --y==;2", "BAR": "3"}),
        ("FOO=--x=1,--y=2,BAR=3", {"FOO": "--x=1,--y=2", "BAR": "3"}),
        ("FOO=--x=,BAR=3", {"FOO": "--x=", "BAR": "3"}),
        ("FOO=--x='a,b=c' --y=1", {"FOO": "--x='a,b=c' --y=1"}),
        ("FOO=1,BAR=-x=1", {"FOO": "1", "BAR": "-x=1"}),
    ],
)
def test_pairs_are_read(text, pairs):
    assert to_dict(text) == pairs


@pytest.mark.parametrize(
    "text", ["FOO", "FOO,", "FOO;", "FOO=", "FOO=;BAR=v1", "A=1=2", "A=,B=1", "A=-x,=1"]
)
def test_text_that_holds_no_pairs_is_refused(text):
    with pytest.raises(ValueError, match=r"does not have at least one|cannot be split"):
        to_dict(text)


def test_an_empty_value_needs_quotes():
    assert to_dict("A=''") == {"A": ""}
    with pytest.raises(ValueError, match=r"empty values: `key=''`"):
        to_dict("A=")


KEYS = st.text("abcXYZ_09", min_size=1)


@given(st.dictionaries(KEYS, st.text("abc=,; x", min_size=1).filter(lambda v: v == v.strip())))
def test_quoted_pairs_survive(pairs):
    assert to_dict(",".join(f"{k}='{v}'" for k, v in pairs.items())) == pairs


def test_values_are_decoded():
    assert decode(None, int) is None
    assert decode("TRUE", bool) is True
    assert decode("no", bool) is False
    assert decode("", bool) == ""
    assert decode("1.0,42.2", list[float]) == [1.0, 42.2]
    assert decode("1=1.0,2=3", dict[int, float]) == {1: 1.0, 2: 3.0}
    assert decode({"a": ["1"]}, dict[str, list[str]]) == {"a": ["1"]}
    assert decode("x", str) == "x"
    assert decode("a,b", Annotated[list[str], "-l"]) == ["a", "b"]
    assert decode_from_string("", list[str]) is None
    with pytest.raises(ValueError, match="expected dict or list"):
        decode_from_string("2", Optional[float])  # noqa: UP045 - the published spelling
    with pytest.raises(ValueError, match="List types support only primitives"):
        decode_from_string("1", list[list[float]])


def test_types_are_told_apart():
    assert decode_optional(Optional[int]) is int  # noqa: UP045 - the published spelling
    assert decode_optional(int | None) is int
    assert decode_optional(None | list[str]) == list[str]
    assert decode_optional(int | str | None) == int | str | None
    assert is_bool(bool)
    assert not is_primitive(bool)
    assert is_primitive(float)
    assert none_throws(0) == 0
    with pytest.raises(AssertionError, match="Unexpected `None`"):
        none_throws(None)


# -- entry points -------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch):
    """Makes an installed package with entry points of the group ``torchx.test_group``."""

    def make(module: str, text: str, points: str) -> None:
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[torchx.test_group]\n{points}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return make


def test_a_group_is_loaded_when_it_is_called(package):
    package(
        "ep_one",
        "import sys\ndef make(a, b=1): return (a, b)\n",
        "make = ep_one:make\nmodule = ep_one\ngone = ep_gone:x\nattr = ep_one:nope",
    )
    group = entrypoints.load_group("torchx.test_group")
    assert "ep_one" not in sys.modules
    assert set(group) == {"make", "module", "gone", "attr"}
    assert group["make"](1, b=2) == (1, 2)
    assert group["module"]("ignored") is sys.modules["ep_one"]
    with pytest.raises(ModuleNotFoundError):
        group["gone"]()
    with pytest.raises(AttributeError):
        group["attr"]()


def test_one_entry_point_is_loaded_by_name(package):
    package("ep_two", "value = 7\n", "value = ep_two:value")
    assert entrypoints.load("torchx.test_group", "value") == 7
    assert entrypoints.load("torchx.test_group", "nope", None) is None
    with pytest.raises(KeyError, match=r"entrypoint torchx\.test_group\.nope not found"):
        entrypoints.load("torchx.test_group", "nope")
    assert entrypoints.load_group("torchx.no_such_group") == {}


def test_clients_can_replace_the_metadata(monkeypatch):
    class Point:
        name, value = "x", "m:y"

        def load(self):
            return lambda: "replaced"

    monkeypatch.setattr("torchx.util.entrypoints.metadata.entry_points", lambda *, group: [Point()])
    assert entrypoints.load_group("torchx.anything")["x"]() == "replaced"


def test_looking_for_plugins_imports_nothing_where_there_are_none():
    code = textwrap.dedent(
        """
        import sys
        sys.path = [p for p in sys.path if "site-packages" not in p]
        from torchx.util.entrypoints import load_group
        assert load_group("torchx.schedulers") == {}
        assert "importlib.metadata" not in sys.modules
        """
    )
    src = str(Path(torchx.__file__).parents[1])
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env={"PYTHONPATH": src})


# -- modules, files, sessions -------------------------------------------------------------------


def test_modules_and_attributes_are_loaded(tmp_path: Path, monkeypatch, caplog):
    (tmp_path / "broken_mod.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert modules.load_module("os.path") is sys.modules["os.path"]
    assert modules.load_module("os:getcwd") is not None
    assert modules.load_module("os.path:join:x") is None
    caplog.clear()
    assert modules.load_module("no.such.module") is None
    assert caplog.text == ""
    assert modules.load_module("broken_mod") is None
    assert "broken_mod" in caplog.text
    assert modules.import_attr("no.such.module", "x", 5) == 5
    assert modules.import_attr("os", "sep", 5) == "/"
    with pytest.raises(ModuleNotFoundError):
        modules.import_attr("broken_mod", "x", 5)
    with pytest.raises(AttributeError):
        modules.import_attr("os", "nope", 5)


def test_a_module_that_exits_does_not_end_the_process(tmp_path: Path, monkeypatch, caplog):
    (tmp_path / "leaving_mod.py").write_text("import sys\nsys.exit('bye')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert modules.load_module("leaving_mod") is None
    assert "cannot load `leaving_mod`: RuntimeError: it calls `sys.exit('bye')`" in caplog.text
    with pytest.raises(RuntimeError, match="it calls"):
        modules.import_attr("leaving_mod", "x", 5)
    point = SimpleNamespace(name="x", value="leaving_mod:x", load=lambda: __import__("leaving_mod"))
    monkeypatch.setattr(entrypoints.metadata, "entry_points", lambda *, group: [point])
    with pytest.raises(RuntimeError, match="it calls"):
        entrypoints.load("torchx.anything", "x")


def test_component_files_are_read_from_disk_or_package(tmp_path: Path):
    (tmp_path / "f.py").write_text("x")
    assert io.read_conf_file(str(tmp_path / "f.py")) == "x"
    assert "def echo(" in io.read_conf_file("torchx/components/utils.py")
    assert Path(io.get_abspath("torchx/components/utils.py")).is_file()
    assert Path("torchx/components") == io.COMPONENTS_DIR
    with pytest.raises(FileNotFoundError, match=r"gone\.py does not exist and is not a builtin"):
        io.read_conf_file("gone.py")


def test_a_process_has_one_session(monkeypatch):
    monkeypatch.setattr(session, "CURRENT_SESSION_ID", None)
    assert session.get_torchx_session_id() is None
    first = session.get_session_id_or_create_new()
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", first
    )
    assert session.get_session_id_or_create_new() == session.get_torchx_session_id() == first
    monkeypatch.setattr(session, "CURRENT_SESSION_ID", None)
    monkeypatch.setenv("TORCHX_INTERNAL_SESSION_ID", "inherited")
    assert session.get_session_id_or_create_new() == "inherited"
    assert session.TORCHX_INTERNAL_SESSION_ID is settings.ENV_TORCHX_INTERNAL_SESSION_ID


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("-/_a/b/CD!123!", "abcd123"),
        ("-a-b", "a-b"),
        ("_-job", "job"),
        ("!!!", ""),
        ("--A--", "a--"),
    ],
)
def test_names_are_normalized(text, name):
    assert strings.normalize_str(text) == name


def test_small_ones(monkeypatch):
    day = 24 * 60 * 60
    assert datetime.get_past_epoch_time(1) - datetime.get_past_epoch_time(3) in (
        2 * day,
        2 * day - 1,
    )
    assert shlex.join(["a b", "c"]) == "'a b' c"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError):
        cuda.has_cuda_devices()


# -- settings, deprecations, version ------------------------------------------------------------


def test_settings_name_the_variables():
    names = {k: v for k, v in vars(settings).items() if k.startswith("ENV_")}
    assert names == {f"ENV_{v}": v for v in names.values()}
    assert set(names.values()) >= {
        "TORCHX_TRACKERS",
        "TORCHX_PARENT_RUN_ID",
        "TORCHX_JOB_ID",
        "TORCHXCONFIG",
        "TORCHX_INTERNAL_SESSION_ID",
        "TORCHX_IMAGE",
    }


def test_a_moved_module_is_told():
    with pytest.warns(UserWarning, match=r"\[Deprecated\] a\.b has moved to c\.d") as caught:
        deprecations.deprecated_module("a.b", "c.d")
    text = str(caught[0].message)
    assert "- from a.b import ..." in text
    assert "+ from c.d import ..." in text


def test_deprecated_functions_warn_on_each_call():
    @deprecations.deprecated(replacement="new()")
    def old(a: int, b: int = 2) -> int:
        """Doc."""
        return a + b

    for _ in range(2):
        with pytest.warns(UserWarning, match=r"old is deprecated -- use new\(\) instead\."):
            assert old(1) == 3
    assert (old.__name__, old.__doc__) == ("old", "Doc.")


def test_deprecated_classes_stay_classes():
    @deprecations.deprecated()
    class Old:
        def __init__(self, a: int) -> None:
            self.a = a

    with pytest.warns(UserWarning, match=r"Old is deprecated\."):
        made = Old(1)
    assert isinstance(made, Old)
    assert made.a == 1


def default_image(**env: str) -> str:
    program = "import torchx.components.utils as utils; print(utils.echo().roles[0].image)"
    environ = {name: value for name, value in os.environ.items() if name != "TORCHX_IMAGE"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env={**environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_environment_names_the_image_of_components():
    assert default_image(TORCHX_IMAGE="example.com/me/mine:1") == "example.com/me/mine:1"
    assert default_image(TORCHX_IMAGE="") == default_image()
    assert default_image().endswith(f"/torchx:{torchx.__version__}")


def test_version_and_image():
    from torchx.version import TORCHX_IMAGE, _get_torchx_image

    assert re.fullmatch(r"\d+\.\d+\.\d+", torchx.__version__)
    assert f"ghcr.io/pytorch/torchx:{torchx.__version__}" == torchx.IMAGE == TORCHX_IMAGE
    assert _get_torchx_image("1") == "ghcr.io/pytorch/torchx:1"
    with pytest.raises(AttributeError):
        _ = torchx.nope
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torchx.IMAGE
