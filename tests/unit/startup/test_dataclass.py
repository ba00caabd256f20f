"""A light dataclass is a dataclass, in all but what its definition costs."""

import ast
import copy
import dataclasses
import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchx
from torchx._startup.dataclass import field, light_dataclass

SRC = Path(torchx.__file__).parent
BOTH = pytest.mark.parametrize("decorate", [light_dataclass, dataclasses.dataclass])

Decorator = Callable[..., Any]


def make(decorate: Decorator) -> type[Any]:
    @decorate
    class Job:
        """A class with one field of each kind."""

        name: str
        replicas: int = 1
        args: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False, compare=False)
        note: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            self.args = [*self.args, "end"]

    Job.__qualname__ = "Job"
    return Job


def make_frozen(decorate: Decorator) -> type[Any]:
    @decorate(frozen=True)
    class Key:
        """A class with a hash."""

        name: str
        index: int = 0

    Key.__qualname__ = "Key"
    return Key


LIGHT, HEAVY = make(light_dataclass), make(dataclasses.dataclass)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 2), {"note": "n"}),
    ((), {"name": "a", "args": ["x"]}),
    (("a", 2, ["x"], "t"), {}),
    ((), {}),
    (("a", 2, ["x"], "t", "n"), {}),
    (("a",), {"name": "b"}),
    (("a",), {"unknown": 1}),
    ((), {"replicas": 1}),
]


def outcome(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    try:
        made = cls(*args, **kwargs)
    except TypeError as err:
        return str(err).rpartition(".")[2]
    return f"{made!r} {vars(made)}"


@pytest.mark.parametrize(("args", "kwargs"), CALLS)
@pytest.mark.parametrize("made_before", [0, 100])
def test_it_is_made_like_a_dataclass_the_first_time_and_later(
    args: tuple[Any, ...], kwargs: dict[str, Any], made_before: int
) -> None:
    light = make(light_dataclass)
    for _ in range(made_before):
        light("x")
    assert outcome(light, args, kwargs) == outcome(HEAVY, args, kwargs)


values = st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text()))


@given(
    args=st.lists(values, max_size=6),
    kwargs=st.dictionaries(st.sampled_from(["name", "replicas", "note", "secret", "no"]), values),
)
def test_any_call_does_the_same(args: list[Any], kwargs: dict[str, Any]) -> None:
    light = make(light_dataclass)
    assert outcome(light, tuple(args), kwargs) == outcome(HEAVY, tuple(args), kwargs)


def test_each_instance_has_its_own_default() -> None:
    light = make(light_dataclass)
    made = [light("x") for _ in range(50)]
    assert len({id(one.args) for one in made}) == 50


def test_its_signature_is_that_of_a_dataclass() -> None:
    assert str(inspect.signature(make(light_dataclass))) == str(inspect.signature(HEAVY))
    used = make(light_dataclass)
    used("x")
    assert str(inspect.signature(used)) == str(inspect.signature(HEAVY))
    assert [f.name for f in dataclasses.fields(used)] == [f.name for f in dataclasses.fields(HEAVY)]
    assert used.__match_args__ == HEAVY.__match_args__


def test_equality_is_that_of_the_same_class_and_what_is_compared() -> None:
    assert LIGHT("a", secret="1") == LIGHT("a", secret="2")
    assert LIGHT("a") != LIGHT("b")
    assert LIGHT("a") != HEAVY("a")
    assert LIGHT("a") != "a"
    with pytest.raises(TypeError, match="unhashable"):
        hash(LIGHT("a"))


def test_what_is_frozen_has_the_hash_of_its_fields() -> None:
    light, heavy = make_frozen(light_dataclass), make_frozen(dataclasses.dataclass)
    assert hash(light("a", 3)) == hash(heavy("a", 3))
    assert {light("a"): 1}[light("a")] == 1
    assert repr(light("a")) == repr(heavy("a")) == "Key(name='a', index=0)"


def test_the_functions_of_dataclasses_take_it() -> None:
    job = LIGHT("a", 3, note="n")
    assert dataclasses.is_dataclass(job)
    assert dataclasses.asdict(job) == dataclasses.asdict(HEAVY("a", 3, note="n"))
    assert dataclasses.replace(job, name="b", args=[]) == LIGHT("b", 3, note="n")
    assert copy.deepcopy(job) == job


@light_dataclass
class Known:
    """A class that pickle can find."""

    name: str
    inner: Any = None


def test_it_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Known("a", Known("b")))) == Known("a", Known("b"))


def test_what_holds_itself_is_shown() -> None:
    loop = Known("a")
    loop.inner = loop
    assert repr(loop) == "Known(name='a', inner=...)"


def test_a_dataclass_may_be_derived_from_it() -> None:
    @dataclasses.dataclass
    class More(Known):
        """With a further field."""

        size: int = 0

    class Plain(Known):
        """Without any."""

        def __init__(self) -> None:
            super().__init__("plain")

    assert repr(More("a", size=2)).endswith("More(name='a', inner=None, size=2)")
    assert str(inspect.signature(More)).startswith("(name: str, inner: Any = None, size: int = 0)")
    assert More("a") == More("a") != More("a", size=1)
    assert Plain().name == "plain"
    assert Plain() != Known("plain")


def test_it_may_be_derived_from_another() -> None:
    @light_dataclass
    class More(Known):
        """With a further field."""

        size: int = 0

    assert vars(More("a", size=2)) == {"name": "a", "inner": None, "size": 2}
    assert vars(Known("a")) == {"name": "a", "inner": None}


@BOTH
def test_what_derives_from_a_frozen_one_is_frozen(decorate: Decorator) -> None:
    base = make_frozen(light_dataclass)

    @decorate(frozen=True)
    class Longer(base):  # type: ignore[misc,valid-type]  # made by a function
        """With a further field."""

        size: int = 0

    assert hash(Longer("a", 1, 2)) == hash(("a", 1, 2))
    assert vars(Longer("a")) == {"name": "a", "index": 0, "size": 0}
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclasses.dataclass
        class Thawed(base):  # type: ignore[misc,valid-type]  # see above
            """May not be."""


def test_own_methods_stay() -> None:
    @light_dataclass
    class Own:
        """Writes all of them itself."""

        name: str

        def __init__(self, text: str) -> None:
            self.name = text.upper()

        def __repr__(self) -> str:
            return self.name

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    assert (repr(Own("a")), Own("a") == 3, hash(Own("a"))) == ("A", True, 5)


def test_its_import_leaves_inspect_alone_until_that_is_used() -> None:
    script = f"""
import sys; sys.path[:] = {sys.path!r}
from torchx._startup.dataclass import light_dataclass
print("inspect" in sys.modules)
from dataclasses import dataclass
@dataclass
class WithoutText:
    name: str
print(WithoutText.__doc__, "inspect" in sys.modules)
import inspect
print(inspect.signature(WithoutText), sys.modules["inspect"].__name__)
"""
    command = [sys.executable, "-S", "-c", script]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    first, second, third = out.splitlines()
    assert first == "False"
    assert second.split() == ["WithoutText(name:", "str)", "True"]
    assert third.split() == ["(name:", "str)", "->", "None", "inspect"]


# -- as the standard library does, step by step -------------------------------------------------


def error_of(define: Callable[[Decorator], Any], decorate: Decorator) -> tuple[type, str]:
    with pytest.raises((TypeError, ValueError)) as raised:
        define(decorate)
    return raised.type, str(raised.value)


def with_a_list_as_default(decorate: Decorator) -> None:
    @decorate
    class Wrong:
        items: list[str] = []  # noqa: RUF012 - what is refused


def with_a_field_without_type(decorate: Decorator) -> None:
    @decorate
    class Wrong:
        items = field(default=1)


def frozen_from_thawed(decorate: Decorator) -> None:
    base = make(decorate)

    @decorate(frozen=True)
    class Wrong(base):  # type: ignore[misc,valid-type]  # made by a function
        pass


def thawed_from_frozen(decorate: Decorator) -> None:
    base = make_frozen(decorate)

    @decorate
    class Wrong(base):  # type: ignore[misc,valid-type]  # made by a function
        pass


def replaced_by_an_unknown_name(decorate: Decorator) -> None:
    dataclasses.replace(make(decorate)("a"), unknown=1)


@pytest.mark.parametrize(
    "define",
    [
        with_a_list_as_default,
        with_a_field_without_type,
        frozen_from_thawed,
        thawed_from_frozen,
    ],
)
def test_a_wrong_definition_is_refused_in_the_same_words(define: Callable[..., Any]) -> None:
    assert error_of(define, light_dataclass) == error_of(define, dataclasses.dataclass)


def test_a_wrong_replacement_is_refused_in_the_same_words() -> None:
    kind, text = error_of(replaced_by_an_unknown_name, light_dataclass)
    assert kind is TypeError
    heavy = error_of(replaced_by_an_unknown_name, dataclasses.dataclass)[1]
    assert text.rpartition(".")[2] == heavy.rpartition(".")[2]


@pytest.mark.parametrize("option", ["slots", "order", "eq", "init", "kw_only"])
def test_what_it_cannot_do_is_refused(option: str) -> None:
    decorate: Any = light_dataclass
    with pytest.raises(TypeError, match=option):
        decorate(**{option: True})


def test_frozen_is_left_to_type_checkers() -> None:
    light, heavy = (make_frozen(d)("a") for d in (light_dataclass, dataclasses.dataclass))
    with pytest.raises(dataclasses.FrozenInstanceError):
        heavy.name = "b"
    light.name = "b"
    assert light.name == "b"
    assert light.__dataclass_params__.frozen is heavy.__dataclass_params__.frozen is True


def test_equality_leaves_other_classes_to_the_other_side() -> None:
    class Any_:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]  # as for every class with an own equality

    for made in (LIGHT("a"), HEAVY("a")):
        assert made.__eq__(3) is NotImplemented
        assert made == Any_()


def test_equality_is_not_that_of_a_base() -> None:
    @light_dataclass
    class More(Known):
        """Without a further field."""

    assert More("a") != Known("a")
    assert Known("a") != More("a")


@BOTH
def test_what_belongs_to_the_class_is_no_field(decorate: Decorator) -> None:
    @decorate
    class Counted:
        """With an attribute of the class and one that is computed."""

        made: ClassVar[int] = 7
        name: str

        @property
        def upper(self) -> str:
            return self.name.upper()

    assert [f.name for f in dataclasses.fields(Counted)] == ["name"]
    assert (Counted.made, Counted("a").upper) == (7, "A")
    assert repr(Counted("a")).endswith("Counted(name='a')")


@BOTH
def test_it_is_matched_by_place(decorate: Decorator) -> None:
    key = make_frozen(decorate)
    match key("a", 3):
        case key(name, index):
            assert (name, index) == ("a", 3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_each_protocol_pickles_it_and_its_hash(protocol: int) -> None:
    key = KnownKey("a", 2)
    again = pickle.loads(pickle.dumps(key, protocol))
    assert (again, hash(again), vars(again)) == (key, hash(key), vars(key))


def test_pickling_makes_nothing_anew() -> None:
    made = Checked("a")
    assert pickle.loads(pickle.dumps(made)).checks == 1
    assert copy.copy(made).checks == 1
    assert dataclasses.replace(made).checks == 2


@light_dataclass(frozen=True)
class KnownKey:
    """A class with a hash that pickle can find."""

    name: str
    index: int = 0


@light_dataclass
class Checked:
    """Counts how often it was made."""

    name: str
    checks: int = 0

    def __post_init__(self) -> None:
        self.checks += 1


# -- ours ---------------------------------------------------------------------------------------


def light_classes() -> Iterator[tuple[str, str]]:
    """Module and name of every light dataclass in the package."""
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if any("light_dataclass" in ast.unparse(d) for d in node.decorator_list):
                parts = path.relative_to(SRC.parent).with_suffix("").parts
                yield ".".join(parts), node.name


def test_ours_are_found() -> None:
    assert ("torchx.specs._resource", "Resource") in set(light_classes())


@pytest.mark.parametrize(("module", "name"), [*light_classes()])
def test_the_constructor_of_each_of_ours_is_that_of_a_dataclass(module: str, name: str) -> None:
    """Above all: no field without a default behind one with it, which is not checked at start."""
    cls = getattr(importlib.import_module(module), name)
    assert all(f.init for f in dataclasses.fields(cls))
    heavy = dataclasses.make_dataclass(
        name,
        [
            (
                f.name,
                f.type,
                dataclasses.field(
                    default=f.default, default_factory=f.default_factory, kw_only=f.kw_only
                ),
            )
            for f in dataclasses.fields(cls)
        ],
    )
    assert str(inspect.signature(cls)) == str(inspect.signature(heavy))
