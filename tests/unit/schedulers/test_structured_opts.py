"""Options declared as dataclass fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers.api import StructuredOpts
from torchx.specs import InvalidRunConfigException


@dataclass
class Net(StructuredOpts):
    mtu: int = 1500
    """Link MTU."""


@dataclass
class Job(StructuredOpts):
    cluster_name: str
    """Where to run."""

    notify: str | None = field(default=None, metadata={"cfg_key": "mail-to"})
    net: Net = field(default_factory=Net)


@dataclass
class Deep(StructuredOpts):
    flag: bool = False
    """Innermost."""


@dataclass
class Middle(StructuredOpts):
    must: str
    """Needed."""
    c: Deep = field(default_factory=Deep)


@dataclass
class Outer(StructuredOpts):
    b_group: Middle
    _private: int = 3
    tags: list[str] = field(default_factory=lambda: ["x"])
    env: dict[str, str] | None = None
    old_style: Optional[int] = None  # noqa: UP045 - both spellings must work
    either: "int | str | None" = None


@dataclass
class MaybeGroup(StructuredOpts):
    name: str = "n"
    g: Middle | None = None


@dataclass
class Base(StructuredOpts):
    inherited: str = "i"
    """From the base."""


@dataclass
class Derived(Base):
    many_lines: list[str] | None = field(
        default=None,
    )
    """Spans
    "two" lines."""

    no_help: int = 1

    def method(self) -> int:
        """Not an option."""
        return 1


def described(cls: type[StructuredOpts]) -> list[tuple[str, Any, Any, bool, str]]:
    return [
        (key, opt.opt_type, opt.default, opt.is_required, opt.help) for key, opt in cls.as_runopts()
    ]


def test_fields_are_options_in_their_order() -> None:
    assert described(Job) == [
        ("cluster_name", str, None, True, "Where to run."),
        ("mail-to", str, None, False, "notify"),
        ("net.mtu", int, 1500, False, "Link MTU."),
    ]


def test_groups_nest_and_private_fields_are_no_options() -> None:
    assert described(Outer) == [
        ("b_group.must", str, None, True, "Needed."),
        ("b_group.c.flag", bool, False, False, "Innermost."),
        ("tags", list[str], None, False, "tags"),
        ("env", dict[str, str], None, False, "env"),
        ("old_style", int, None, False, "old_style"),
        ("either", Outer.as_runopts().get("either").opt_type, None, False, "either"),  # type: ignore[union-attr]  # it is there
    ]
    either = Outer.as_runopts().get("either")
    assert either is not None
    assert set(either.opt_type.__args__) == {int, str}


def test_help_comes_from_bases_and_from_below_long_declarations() -> None:
    assert Derived.get_docstrings() == {
        "inherited": "From the base.",
        "many_lines": 'Spans\n    "two" lines.',
    }
    assert Outer.get_docstrings() == {"b_group.must": "Needed.", "b_group.c.flag": "Innermost."}


def test_classes_of_one_name_are_told_apart() -> None:
    def first() -> type[StructuredOpts]:
        @dataclass
        class Same(StructuredOpts):
            a: int = 1
            """First."""

        return Same

    def second() -> type[StructuredOpts]:
        @dataclass
        class Same(StructuredOpts):
            b: int = 1
            """Second."""

        return Same

    assert first().get_docstrings() == {"a": "First."}
    assert second().get_docstrings() == {"b": "Second."}


def test_a_class_without_source_has_no_help() -> None:
    space: dict[str, Any] = {"__name__": "no_such_module"}
    exec(  # a class as a REPL makes it
        "from dataclasses import dataclass\n"
        "from torchx.schedulers.api import StructuredOpts\n"
        "@dataclass\n"
        "class Repl(StructuredOpts):\n"
        "    a: int = 1\n"
        "    '''Help.'''\n",
        space,
    )
    assert space["Repl"].get_docstrings() == {}
    assert [opt.help for _, opt in space["Repl"].as_runopts()] == ["a"]


def test_options_that_are_added_to_are_those_of_the_caller_alone() -> None:
    first = Base.as_runopts()
    first.add("more", type_=str, help="of the caller")
    assert [key for key, _ in Base.as_runopts()] == ["inherited"]
    assert [key for key, _ in Derived.as_runopts()][:2] == ["inherited", "many_lines"]


def test_the_example_of_the_reference() -> None:
    job = Job.from_cfg({"clusterName": "c1", "net.mtu": 9000, "foo": 1})
    assert job.cluster_name == "c1"
    assert job["net.mtu"] == 9000
    assert job["foo"] == 1
    assert list(job) == ["cluster_name", "mail-to", "net.mtu", "foo"]
    assert len(job) == 4
    assert job.net == Net(9000)


def test_options_are_taken_under_each_spelling() -> None:
    assert Job.from_cfg({"cluster_name": "c", "mail-to": "m"}).notify == "m"
    assert Job.from_cfg({"cluster_name": "c", "notify": "m"}).notify == "m"
    assert Job.from_cfg({"cluster_name": "c", "clusterName": "c"}).cluster_name == "c"
    with pytest.raises(InvalidRunConfigException, match="`cluster_name` and `clusterName`") as err:
        Job.from_cfg({"cluster_name": "c", "clusterName": "d"})
    assert err.value.cfg_key == "cluster_name"
    with pytest.raises(InvalidRunConfigException) as err:
        Job.from_cfg({"cluster_name": "c", "notify": "a", "mail-to": "b"})
    assert err.value.cfg_key == "mail-to"


def test_a_missing_option_is_the_constructors_error() -> None:
    with pytest.raises(TypeError, match="cluster_name"):
        Job.from_cfg({})
    with pytest.raises(TypeError, match="must"):
        Outer.from_cfg({})


def test_values_are_not_checked() -> None:
    values: Mapping[str, Any] = {"cluster_name": 3, "net.mtu": "many"}
    job = Job.from_cfg(values)
    assert dict(job) == {"cluster_name": 3, "mail-to": None, "net.mtu": "many"}


def test_groups_are_filled_by_their_prefix() -> None:
    outer = Outer.from_cfg({"b_group.must": "m", "bGroup.c.flag": True})
    assert outer.b_group == Middle("m", Deep(True))
    assert outer["b_group.c.flag"] is True
    assert outer["bGroup.c.flag"] is True
    assert "b_group.none" not in outer
    with pytest.raises(InvalidRunConfigException):
        Outer.from_cfg({"b_group.must": "m", "bGroup.must": "n"})


def test_a_group_that_may_be_absent_has_no_required_options() -> None:
    opts = MaybeGroup.as_runopts()
    resolved = opts.resolve({})
    assert MaybeGroup.from_cfg(resolved).g is None
    assert MaybeGroup.from_cfg({}).g is None
    assert list(MaybeGroup.from_cfg({})) == ["name"]
    assert "g.must" not in MaybeGroup.from_cfg({})
    given = MaybeGroup.from_cfg(opts.resolve({"g.must": "m"}))
    assert given.g == Middle("m", Deep(False))
    with pytest.raises(InvalidRunConfigException, match=r"g\.must, must be provided") as err:
        MaybeGroup.from_cfg(opts.resolve({"g.c.flag": True}))
    assert err.value.cfg_key == "g.must"


def test_resolved_options_leave_default_factories_alone() -> None:
    cfg = Outer.as_runopts().resolve({"b_group.must": "m"})
    assert cfg["tags"] is None
    assert Outer.from_cfg(cfg).tags == ["x"]


def test_camel_case_resolves_to_snake_case() -> None:
    assert "cluster_name" in Job.as_runopts().resolve({"clusterName": "c"})


def test_only_options_are_keys() -> None:
    job = Job.from_cfg({"cluster_name": "c", "extra": None})
    for name in ("get", "from_cfg", "_extra_cfg", "none", "net", "net.none"):
        assert name not in job
        with pytest.raises(KeyError):
            job[name]
    assert 3 not in job  # type: ignore[comparison-overlap]  # what is tested
    assert "clusterName" in job
    assert not hasattr(job, "clusterName")
    assert job.get("mail-to", "d") is None
    assert job.get("extra", "d") is None
    assert job.get("none", "d") == "d"


def test_two_make_a_dict() -> None:
    both = Net(1) | Job.from_cfg({"cluster_name": "c", "x": 1})
    assert both == {"mtu": 1, "cluster_name": "c", "mail-to": None, "net.mtu": 1500, "x": 1}
    assert type(both) is dict


def test_equality_is_that_of_the_fields() -> None:
    assert Net.from_cfg({"mtu": 1, "extra": 1}) == Net(1)
    assert Net(1) != Net(2)
    assert Net(1) != Deep(True)
    assert repr(Net(1)) == "Net(mtu=1)"
    with pytest.raises(TypeError):
        hash(Net(1))
    assert Net()
    assert {**Net(3)} == {"mtu": 3}


def test_an_object_without_options_is_false() -> None:
    @dataclass
    class Nothing(StructuredOpts):
        pass

    assert not Nothing()
    assert list(Nothing.from_cfg({"x": 1})) == ["x"]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,5})?", fullmatch=True).filter(
            lambda k: not k.startswith("net.")
        ),
        st.one_of(st.none(), st.integers(), st.text(), st.booleans()),
    )
)
def test_nothing_is_lost_on_the_way(cfg: dict[str, Any]) -> None:
    cfg = {"cluster_name": "c", "mail-to": None, "net.mtu": 1, **cfg}
    cfg.pop("notify", None)
    assert dict(Job.from_cfg(cfg)) == cfg
