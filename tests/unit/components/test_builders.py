"""Linter, docstrings, arguments of components."""

from pathlib import Path
from typing import Annotated, Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.specs import AppDef
from torchx.specs.builders import (
    _create_args_parser,
    component_args_from_str,
    materialize_appdef,
    parse_args,
)
from torchx.specs.file_linter import (
    ArgTypeValidator,
    LinterMessage,
    ReturnTypeValidator,
    get_fn_docstring,
    validate,
)

# -- linter -------------------------------------------------------------------------------------


@pytest.fixture
def lint(tmp_path: Path):
    def check(source: str, name: str = "f", **kwargs: Any) -> list[LinterMessage]:
        path = tmp_path / "component.py"
        path.write_text(source)
        return validate(str(path), name, **kwargs)

    return check


GOOD = [
    "a: int", "a: str = ''", "a: list", "a: Foo", "*a: str", "*, a: float", "a: bool, /",
    "a: dict[str, int]", "a: Dict[str, int]", "a: list[str]", "a: List[str]", "a: Optional[str]",
    "a: str | None", "a: None | list[str]", "a: Optional[Dict[str, str]]", "a: tuple[int, str]",
    "a: Annotated[str, '-x']", "a: typing.List[str]", "a: typing.Optional[int]",
]  # fmt: skip


@pytest.mark.parametrize("parameters", GOOD)
@pytest.mark.parametrize("returns", ["AppDef", "specs.AppDef", "a.b.AppDef", "'AppDef'"])
def test_good_components_pass(lint, parameters, returns):
    assert lint(f"def f({parameters}) -> {returns}: ...") == []


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("a", "Missing type annotation for argument 'a' in function 'f'"),
        ("a, /", "Missing type annotation for argument 'a' in function 'f'"),
        ("a: dict[list[str], str]", "Non-primitive key type 'list[str]'"),
        (
            "a: dict[str, list[int]]",
            "Non-primitive value type 'list[int]' for argument 'a: dict[str, list[int]]'",
        ),
        ("a: dict[str]", "Malformed dict type 'dict[str]', expected exactly two type parameters"),
        ("a: list[list[str]]", "Non-primitive element type 'list[str]'"),
        ("a: tuple[str]", "Unsupported tuple type 'tuple[str]': single-element tuples"),
        ("a: tuple[str, ...]", "Non-primitive element type ''...''"),
        ("a: Set[str]", "Unsupported container type 'Set'"),
        ("a: Optional[Optional[str]]", "Unsupported container type 'Optional'"),
        ("a: int | str", "Unsupported argument type 'int | str'"),
        ("a: foo.Bar", "Unsupported argument type 'foo.Bar'"),
        ("**a: str", "Unsupported '**kwargs' parameter"),
    ],
)
def test_bad_parameters_are_told(lint, parameters, problem):
    (message,) = lint(f"\ndef f({parameters}) -> AppDef: ...")
    assert message.description.startswith(problem)
    assert (message.name, message.line, message.char, message.severity) == (
        "TorchxFunctionValidator",
        2,
        0,
        "error",
    )


@pytest.mark.parametrize(
    ("returns", "problem"),
    [
        ("", "Function: f missing return annotation or has unknown annotations."),
        (" -> None", "Function: f missing return annotation"),
        (" -> list[AppDef]", "Function: f missing return annotation"),
        (" -> ''", "Function: f missing return annotation"),
        (" -> int", "Function: f has incorrect return annotation, supported annotation: AppDef"),
        (" -> 'specs.AppDef'", "Function: f has incorrect return annotation"),
    ],
)
def test_bad_return_types_are_told(lint, returns, problem):
    (message,) = lint(f"def f(){returns}: ...")
    assert message.description.startswith(problem)


def test_which_definitions_count(lint):
    nested = "def g():\n    def f() -> AppDef: ...\nclass C:\n    def f(self) -> AppDef: ...\n"
    for source in (nested, "async def f() -> AppDef: ...", "from m import f"):
        (message,) = lint(source)
        assert message.description == "Function f not found"
    assert lint("if True:\n    def f() -> AppDef: ...") == []
    both = "try:\n    def f(a) -> AppDef: ...\nexcept E:\n    def f(b) -> AppDef: ..."
    assert len(lint(both)) == 2


def test_class_components_are_checked_by_their_build(lint):
    source = "class f:\n    def __init__(self, a): ...\n    def build(self) -> {}: ..."
    assert lint(source.format("AppDef")) == []
    assert len(lint(source.format("int"))) == 1
    assert lint("class f(Base):\n    pass") == []


def test_files_that_cannot_be_checked(lint):
    (message,) = lint("def f(:\n")
    assert (message.name, message.line) == ("TorchXValidator", 1)
    with pytest.raises(FileNotFoundError):
        validate("no_such_file.py", "f")


def test_validators_can_be_chosen(lint):
    assert lint("def f(a): ...", validators=[]) == []
    assert len(lint("def f(a): ...", validators=[ArgTypeValidator()])) == 1
    assert lint("def f(a) -> X: ...", validators=[ReturnTypeValidator("X")]) == []


# -- docstrings ---------------------------------------------------------------------------------


def documented(a: str, b: int = 1, c: int = 2) -> AppDef:
    """Short

    Long

    Args:
        a: text
        c: number
        gone: not there
    """
    return AppDef("x")


def undocumented(a: str = "%") -> AppDef:
    return AppDef("x")


def test_docstrings_are_read():
    description, parameters = get_fn_docstring(documented)
    assert description == "Short\nLong"
    assert parameters == {"a": "text", "b": " ", "c": "number", "gone": "not there"}
    description, parameters = get_fn_docstring(undocumented)
    assert description.startswith("undocumented TIP: improve this help string")
    assert parameters == {"a": " "}


def test_help_shows_all(capsys):
    for fn in (documented, undocumented):
        with pytest.raises(SystemExit) as caught:
            _create_args_parser(fn).parse_args(["--help"])
        assert caught.value.code == 0
    text = capsys.readouterr().out
    for part in (
        "Short\nLong",
        "--a str",
        "text (required)",
        "--b int",
        "number (default: 2)",
        "TIP",
    ):
        assert part in text
    assert "usage: torchx run <run args...> documented " in text


# -- arguments ----------------------------------------------------------------------------------


def args_of(fn, argv, defaults=None, config=None):
    return component_args_from_str(fn, argv, defaults, config)


def mixed(foo: str, *args: str, bar: str = "asdf") -> AppDef:
    return AppDef(foo, metadata={"args": repr(args), "bar": bar})


@pytest.mark.parametrize(
    ("argv", "var_args", "bar"),
    [
        (["--foo", "f", "--bar=b", "x", "--y"], ["x", "--y"], "b"),
        (["--foo", "f", "x", "--bar", "b"], ["x", "--bar", "b"], "asdf"),
        (["--foo", "f"], [], "asdf"),
        (["--foo", "f", "--", "--help"], ["--help"], "asdf"),
        (["--foo", "f", "--", "a", "--", "b"], ["a", "--", "b"], "asdf"),
        (["--fo", "f", "-1", "-1"], ["-1", "-1"], "asdf"),
        (["--foo", "f", "--unknown", "1"], ["--unknown", "1"], "asdf"),
    ],
)
def test_what_is_no_option_begins_the_rest(argv, var_args, bar):
    assert args_of(mixed, argv) == ({"foo": "f"}, var_args, {"bar": bar})


def test_defaults_for_the_rest():
    app = materialize_appdef(mixed, ["--foo", "f"], {"args": "p q"})
    assert app.metadata["args"] == "('p', 'q')"
    app = materialize_appdef(mixed, ["--foo", "f", "z"], {"args": "p q"})
    assert app.metadata["args"] == "('z',)"
    assert args_of(mixed, ["--foo", "f"], None, {"args": ["a b"]}).var_args == ["a b"]


def typed(
    i: int,
    l: list[str],  # noqa: E741 - the short option is meant
    d: dict[str, int] | None = None,
    b: bool = False,
    o: Optional[int] = None,  # noqa: UP045 - both spellings are accepted
    n: None | list[float] = None,
    long: Annotated[str, "-x"] = "z",
) -> AppDef:
    return AppDef("x")


def test_values_get_their_types():
    argv = [
        "-i",
        "3",
        "-l",
        "a, b",
        "--d",
        "k=1,m=2",
        "-b",
        "Yes",
        "-o",
        "5",
        "-n",
        "1,2",
        "-x",
        "y",
    ]
    assert args_of(typed, argv).positional_args == {
        "i": 3,
        "l": ["a", "b"],
        "d": {"k": 1, "m": 2},
        "b": True,
        "o": 5,
        "n": [1.0, 2.0],
        "long": "y",
    }
    values = args_of(typed, ["-i", "1", "-l", ""]).positional_args
    assert (values["l"], values["d"], values["b"], values["o"]) == (None, None, False, None)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-l", "a"], "the following arguments are required: --i"),
        (["-i", "x", "-l", "a"], "invalid int value: 'x'"),
        (["-i", "1", "-l", "a", "-b", "maybe"], "argument --b: invalid bool value: 'maybe', write"),
        (["-i", "1", "-l", "a", "-o", "x"], "argument --o: invalid int value: 'x'"),
        (["-i", "1", "-l", "a", "-n", "1,x"], "argument --n: invalid float value: 'x'"),
        (["-i", "1", "-l", "a", "--d", "k"], "argument --d: `k` does not have at least one"),
        (["-i", "1", "-l", "a", "--d", "k=x"], "argument --d: invalid int value: 'x'"),
        (["-i", "1", "-l", "a", "--lonk", "1"], "did you mean --long?"),
        (["-i", "1", "-l", "a", "stray"], "unrecognized arguments: stray"),
    ],
)
def test_wrong_arguments_are_usage_errors(capsys, argv, text):
    with pytest.raises(SystemExit) as caught:
        materialize_appdef(typed, argv)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_precedence():
    def flag(b: bool = False, i: int = 1) -> AppDef:
        return AppDef("x")

    assert args_of(flag, ["--b", "True"], {"b": "False"}, {"b": False}).positional_args["b"] is True
    assert args_of(flag, [], {"i": "7"}, {"i": 8}).positional_args["i"] == 8
    assert args_of(flag, [], {"i": "7", "nope": "1"}).positional_args["i"] == 7
    assert args_of(flag, [], None, {"b": 1, "unknown": 2}).positional_args == {"b": True, "i": 1}


def test_typed_config_values_pass_unchanged():
    values = args_of(typed, [], None, {"i": 1, "l": ["x"], "d": {"a": 1}}).positional_args
    assert (values["l"], values["d"]) == (["x"], {"a": 1})


def test_unsupported_components_are_refused():
    def kwargs(**k: str) -> AppDef:
        return AppDef("x")

    with pytest.raises(TypeError, match=r"`k` is a '\*\*kwargs' which is not supported"):
        materialize_appdef(kwargs, [])

    def no_app() -> AppDef:
        return 1  # type: ignore[return-value]  # that is the point

    with pytest.raises(TypeError, match="Expected a component that returns `AppDef`, but got"):
        materialize_appdef(no_app, [])

    def pair(t: tuple[int, int]) -> AppDef:
        return AppDef("x")

    with pytest.raises(ValueError, match="unsupported argument annotation"):
        materialize_appdef(pair, ["--t", "1,2"])


def test_parsing_alone_gives_text():
    namespace = parse_args(typed, ["-i", "3", "-l", "a,b"])
    assert (namespace.i, namespace.l, namespace.b) == (3, "a,b", "False")


def echo_args(number: int, text: str, flag: bool, *rest: str) -> AppDef:
    return AppDef("x")


VALUE = st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(
    lambda t: not t.startswith("-")
)


@given(st.integers(), VALUE, st.booleans(), st.lists(st.text(max_size=5)))
def test_arguments_survive_the_command_line(number, text, flag, rest):
    argv = [f"--number={number}", f"--text={text}", "--flag", str(flag), "--", *rest]
    args = args_of(echo_args, argv)
    assert args.positional_args == {"number": number, "text": text, "flag": flag}
    assert args.var_args == rest
