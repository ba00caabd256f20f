"""Overlays: merging, operators, accumulation, files, validation."""

import copy
import dataclasses
import doctest
import enum
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.specs import AppDef, Role, _overlay_merge, overlays
from torchx.specs._overlay_merge import field_of
from torchx.specs.overlays import (
    DEL,
    JOIN,
    PUT,
    OverlaySpec,
    apply_overlay,
    get_overlay,
    set_overlay,
    validate_overlay,
)


def applied(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(overlay)
    apply_overlay(base, overlay)
    assert overlay == before
    return base


def role(**metadata: Any) -> Role:
    return Role("r", "i", metadata=metadata)


def test_the_examples_in_the_docstrings():
    results = [doctest.testmod(module) for module in (overlays, _overlay_merge)]
    assert sum(result.attempted for result in results) > 8
    assert [result.failed for result in results] == [0, 0]


# -- applying -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        (
            {"spec": {"cpu": 1}, "tags": ["x"], "n": 1},
            {"spec": {"mem": 2}, "tags": ["y"], "n": 3},
            {"spec": {"cpu": 1, "mem": 2}, "tags": ["x", "y"], "n": 3},
        ),
        (
            {"c": [{"name": "m", "image": "v1", "env": {"A": 1}}]},
            {JOIN("c", on="name"): [{"name": "m", "env": {"B": 2}}, {"name": "s"}]},
            {"c": [{"name": "m", "image": "v1", "env": {"B": 2}}, {"name": "s"}]},
        ),
        ({"k": 1, "d": 2}, {DEL("d"): None, DEL("zz"): None}, {"k": 1}),
        ({}, {"t": (1, 2)}, {"t": [1, 2]}),
        ({"t": [0]}, {"t": (1, 2)}, {"t": [1, 2]}),
        ({"n": 1, "m": 1}, {"n": "HIGH", "m": None}, {"n": "HIGH", "m": None}),
        ({"a": [1]}, {"a": [2], PUT("a"): [9]}, {"a": [9]}),
        ({"a": [1]}, {PUT("a"): [9], "a": [2]}, {"a": [9, 2]}),
        ({"a": {"b": 1}}, {PUT("a"): [1]}, {"a": [1]}),
        ({}, {"spec": {PUT("x"): [1], DEL("y"): None}}, {"spec": {"x": [1]}}),
        ({}, {"a": {"b": {JOIN("c", on="n"): [{"n": 1}]}}}, {"a": {"b": {"c": [{"n": 1}]}}}),
        ({}, {"l": [{PUT("x"): 1}]}, {"l": [{"__put__:x": 1}]}),
        ({}, {PUT("p"): {PUT("x"): 1}}, {"p": {"__put__:x": 1}}),
        ({"c": [{"n": 1}]}, {JOIN("c", on="n"): []}, {"c": [{"n": 1}]}),
        ({}, {JOIN("c", on="n"): [{"n": 1}, {"n": 1}]}, {"c": [{"n": 1}, {"n": 1}]}),
        ({"c": [{"x": 1}]}, {JOIN("c", on="n"): [{"y": 1}]}, {"c": [{"x": 1}, {"y": 1}]}),
    ],
)
def test_overlays_are_merged(base, overlay, result):
    assert applied(base, overlay) == result


@pytest.mark.parametrize(
    ("base", "overlay", "error", "text"),
    [
        ({"a": {}}, {"a": []}, TypeError, "type mismatch for attr: `a`. "),
        ({"a": 1}, {"a": {}}, TypeError, "type mismatch"),
        ({"a": []}, {"a": None}, TypeError, "type mismatch"),
        ({}, {"__join__:x": []}, ValueError, "malformed JOIN key: `__join__:x`"),
        ({}, {JOIN("c", on="n"): {}}, TypeError, "JOIN requires a list value, got"),
        ({}, {JOIN("c", on="n"): [1]}, TypeError, "`c` overlay contains non-dict items"),
        ({"c": 1}, {JOIN("c", on="n"): []}, TypeError, "JOIN requires base[`c`] to be a list"),
        ({"c": [1]}, {JOIN("c", on="n"): []}, TypeError, "but `c` contains non-dict items"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(base, overlay, error, text):
    whole = {"before": {"x": [1]}, **base}
    expected = copy.deepcopy(whole)
    with pytest.raises(error) as caught:
        apply_overlay(whole, {"before": {"x": [2]}, **overlay})
    assert text in str(caught.value)
    assert whole == expected


def test_join_keys_are_checked_when_they_are_made():
    for key, on in (("c:d", "n"), ("c", "")):
        with pytest.raises(ValueError, match="JOIN"):
            JOIN(key, on=on)


def test_nothing_is_shared_with_the_overlay_and_dicts_stay_the_same_objects():
    inner: dict[str, Any] = {"x": {"y": 1}}
    base = {"spec": {"a": 1}}
    spec = base["spec"]
    overlay = {"spec": {"new": inner}, "l": [inner]}
    apply_overlay(base, overlay)
    assert base["spec"] is spec
    inner["x"]["y"] = 2
    assert base["spec"]["new"] == {"x": {"y": 1}}  # type: ignore[comparison-overlap]  # now it is
    assert base["l"] == [{"x": {"y": 1}}]  # type: ignore[comparison-overlap]  # as above


# -- the algebra --------------------------------------------------------------------------------

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.text("ab", max_size=2))
NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.one_of(NAMES, NAMES.map(PUT), NAMES.map(DEL), NAMES.map(lambda n: JOIN(n, on="name")))
TREES = st.recursive(
    LEAVES,
    lambda kids: st.lists(kids, max_size=3) | st.dictionaries(NAMES, kids, max_size=3),
    max_leaves=8,
)
OVERLAYS = st.recursive(
    st.dictionaries(KEYS, TREES, max_size=4),
    lambda inner: st.dictionaries(KEYS, inner | TREES, max_size=4),
    max_leaves=4,
)
BASES = st.dictionaries(NAMES, TREES, max_size=4)


@given(BASES)
def test_an_empty_overlay_is_the_identity(base):
    assert applied(copy.deepcopy(base), {}) == base


@given(BASES, OVERLAYS)
def test_an_error_leaves_the_base_untouched(base, overlay):
    before = copy.deepcopy(base)
    try:
        applied(base, overlay)
    except (TypeError, ValueError):
        assert base == before
    else:
        assert not any(k.startswith("__") for k in base)


@given(BASES, TREES, TREES)
def test_the_last_put_wins(base, one, two):
    target = role()
    set_overlay(target, "ns", "K", {PUT("a"): one})
    set_overlay(target, "ns", "K", {PUT("a"): two})
    assert get_overlay(target, "ns", "K") == {PUT("a"): two}
    assert applied(base, get_overlay(target, "ns", "K"))["a"] == two


@given(st.lists(OVERLAYS, max_size=4))
def test_at_most_one_key_for_a_field_survives(all_overlays):
    target = role()
    for overlay in all_overlays:
        before = copy.deepcopy(target.metadata)
        try:
            set_overlay(target, "ns", "K", overlay)
        except (TypeError, ValueError):
            assert target.metadata == before
            continue
        fields = [field_of(key) for key in get_overlay(target, "ns", "K")]
        assert len(fields) == len(set(fields))


@given(st.dictionaries(NAMES, st.integers()), st.dictionaries(NAMES, st.integers()))
def test_plain_overlays_add_up(one, two):
    target = role()
    set_overlay(target, "ns", "K", one)
    set_overlay(target, "ns", "K", two)
    both = applied(applied({}, one), two)
    assert applied({}, get_overlay(target, "ns", "K")) == both


# -- accumulation -------------------------------------------------------------------------------

LIST = [{"name": "m", "cpu": 1}]
MORE = [{"name": "m", "mem": 2}]
BOTH = [{"name": "m", "cpu": 1, "mem": 2}]


@pytest.mark.parametrize(
    ("stored", "incoming", "kept"),
    [
        ({"x": LIST}, {"x": MORE}, {"x": LIST + MORE}),
        ({"x": LIST}, {PUT("x"): MORE}, {PUT("x"): MORE}),
        ({"x": LIST}, {DEL("x"): None}, {DEL("x"): None}),
        ({"x": LIST}, {JOIN("x", on="name"): MORE}, {JOIN("x", on="name"): BOTH}),
        ({"x": {"a": 1}}, {"x": {"b": 1}}, {"x": {"a": 1, "b": 1}}),
        ({"x": {"a": 1}}, {JOIN("x", on="name"): MORE}, {JOIN("x", on="name"): MORE}),
        ({PUT("x"): LIST}, {"x": MORE}, {"x": MORE}),
        ({PUT("x"): LIST}, {PUT("x"): {"a": 1}}, {PUT("x"): {"a": 1}}),
        ({PUT("x"): LIST}, {JOIN("x", on="name"): MORE}, {JOIN("x", on="name"): MORE}),
        ({DEL("x"): None}, {"x": 1}, {"x": 1}),
        ({DEL("x"): None}, {PUT("x"): 1}, {PUT("x"): 1}),
        ({JOIN("x", on="name"): LIST}, {"x": MORE}, {"x": MORE}),
        ({JOIN("x", on="name"): LIST}, {PUT("x"): 1}, {PUT("x"): 1}),
        ({JOIN("x", on="name"): LIST}, {DEL("x"): None}, {DEL("x"): None}),
        ({JOIN("x", on="name"): LIST}, {JOIN("x", on="name"): MORE}, {JOIN("x", on="name"): BOTH}),
        ({JOIN("x", on="name"): LIST}, {JOIN("x", on="id"): MORE}, {JOIN("x", on="id"): MORE}),
        ({"s": {PUT("x"): 1}}, {"s": {DEL("x"): None}}, {"s": {DEL("x"): None}}),
    ],
)
@pytest.mark.parametrize("target", [role(), AppDef("a")], ids=["role", "app"])
def test_overlays_accumulate(target, stored, incoming, kept):
    target.metadata.clear()
    set_overlay(target, "k8s", "Pod", stored)
    set_overlay(target, "k8s", "Pod", incoming)
    assert get_overlay(target, "k8s", "Pod") == kept


def test_a_failed_call_leaves_the_old_overlay_whole():
    target = role()
    set_overlay(target, "ns", "K", {"a": 1, "b": []})
    before = copy.deepcopy(target.metadata)
    for bad in ({"a": 2, "b": {}}, {JOIN("b", on="n"): [1]}, 5, int):
        with pytest.raises(TypeError):
            set_overlay(target, "ns", "K", bad)
        assert target.metadata == before


def test_namespaces_are_marked_and_replaced(caplog):
    target = role(ns=5)
    set_overlay(target, "ns", "K", {})
    assert target.metadata == {"ns": {"__torchx_overlays__": True, "K": {}}}
    assert "ns" in caplog.text
    assert "int" in caplog.text
    for call in (
        lambda k: set_overlay(target, "ns", k, {}),
        lambda k: get_overlay(target, "ns", k),
    ):
        with pytest.raises(ValueError, match="is reserved for the nested-format marker"):
            call("__torchx_overlays__")


# -- dataclasses --------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Inner:
    q: Any = None
    name: str = "n"


@dataclasses.dataclass
class Outer:
    l: list[Any]  # noqa: E741 - the path in the message is short
    color: Color = Color.RED
    skip: int | None = None


def test_dataclasses_become_dicts():
    target = role()
    set_overlay(target, "ns", "K", Outer([Inner(1), (1, 2)]))
    assert get_overlay(target, "ns", "K") == {
        "l": [{"q": 1, "name": "n"}, (1, 2)],
        "color": "red",
    }
    set_overlay(target, "ns", "L", {"a": Inner(), "b": None, "c": Color.RED})
    assert get_overlay(target, "ns", "L") == {"a": {"name": "n"}, "b": None, "c": "red"}


def test_what_dataclasses_may_not_hold():
    with pytest.raises(TypeError, match=r"overlay\.l\[0\]\.q: unsupported dataclass overlay value"):
        set_overlay(role(), "ns", "K", Outer([Inner(object())]))
    with pytest.raises(TypeError, match=r"overlay\.l\[0\]: dataclass overlay mapping keys must"):
        set_overlay(role(), "ns", "K", Outer([{1: 2}]))
    with pytest.raises(TypeError, match="overlay must be a dict or dataclass instance"):
        set_overlay(role(), "ns", "K", Outer)


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "found", "warns"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, True),
        ({"spec": {"a": 1}, "v": "v1"}, {"spec": {"a": 1}, "v": "v1"}, True),
        ({"JobSpec": {}, "JobConfig": {}}, {}, False),
        ({"V1Pod": {"a": 1}}, {"a": 1}, False),
        ({"V1Pod": 5}, {"V1Pod": 5}, True),
        ({}, {}, False),
        (123, {}, False),
    ],
)
def test_dicts_written_by_hand(metadata, found, warns, caplog):
    assert get_overlay(role(ns=metadata), "ns", "V1Pod") == found
    assert ("flat" in caplog.text) == warns
    strict = get_overlay(role(ns=metadata), "ns", "V1Pod", flat_fallback=False)
    assert strict == ({} if warns else found)


def test_another_kind_is_not_handed_out(caplog):
    caplog.set_level("DEBUG")
    target = role()
    set_overlay(target, "ns", "A", {"x": 1})
    assert get_overlay(target, "ns", "B") == get_overlay(target, "other", "A") == {}
    assert [r.levelname for r in caplog.records] == ["DEBUG"]
    assert "__torchx_overlays__" not in caplog.text


def test_overlays_are_loaded_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "o"
    path.write_text(json.dumps({"K": {"a": [1]}}))
    monkeypatch.setenv("HOME", str(tmp_path))
    for uri in (str(path), f"file://{path}", "~/o", "file://~/o"):
        assert get_overlay(role(ns=uri), "ns", "K") == {"a": [1]}
    path.write_text("K:\n  a: !!python/tuple [1, 2]\n")
    assert get_overlay(role(ns=str(path)), "ns", "K") == {"a": (1, 2)}
    for bad, text in (("[1]", "must contain a dict, got"), ("a: [", "neither JSON nor YAML")):
        path.write_text(bad)
        with pytest.raises(ValueError, match=text):
            get_overlay(role(ns=str(path)), "ns", "K")
    with pytest.raises(FileNotFoundError):
        get_overlay(role(ns=str(tmp_path / "gone")), "ns", "K")


def test_overlays_are_loaded_from_urls():
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fsspec.filesystem("memory").pipe("/o.json", b'{"K": {"a": 1}}')
    assert get_overlay(role(ns="memory://o.json"), "ns", "K") == {"a": 1}


# -- validation ---------------------------------------------------------------------------------


def test_fields_are_refused():
    overlay = {PUT("env"): {}, "command": 1, "ok": {"env": 1}}
    with pytest.raises(ValueError, match=r"attributes `Pod\.env`, `Pod\.command` since they can"):
        validate_overlay(overlay, blocklist=["env", "command"], overlay_name="Pod")
    with pytest.raises(ValueError, match=r"Pod overlay contains misplaced keys: \{'env'\}\. Use X"):
        validate_overlay(overlay, forbidden_keys={"env"}, overlay_name="Pod", suggestion="Use X")
    validate_overlay(overlay, blocklist=["other"])
    validate_overlay(overlay)


def test_a_spec_checks_what_it_keeps_and_reads():
    spec = OverlaySpec("ns", "Pod", ("env",))
    target = role()
    with pytest.raises(ValueError, match=r"Pod\.env"):
        spec.set(target, {DEL("env"): None})
    assert target.metadata == {}
    spec.set(target, {"a": 1})
    assert spec.get(target) == {"a": 1}
    set_overlay(target, "ns", "Pod", {"env": 1})
    with pytest.raises(ValueError, match=r"Pod\.env"):
        spec.get(target)
    assert OverlaySpec("flat", "Pod").get(role(flat={"spec": 1})) == {}
