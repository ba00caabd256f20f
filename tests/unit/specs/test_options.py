"""Options of schedulers: types, defaults, text forms."""

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import InvalidInput
from torchx.specs import InvalidRunConfigException, cases, get_type_name, runopt, runopts


@pytest.fixture
def opts() -> runopts:
    opts = runopts()
    opts.add("run_as", type_=str, required=True, help="run as user")
    opts.add("priority", type_=int, default=10, help="job priority")
    opts.add("tags", type_=list[str], default=["a"], help="tags")
    return opts


@pytest.mark.parametrize(
    ("tp", "name"),
    [
        (int, "int"),
        (list[str], "list"),
        (dict[str, str], "dict"),
        (typing.List[int], "typing.List[int]"),  # noqa: UP006 - both spellings are accepted
        (typing.Union[str, int], "typing.Union[str, int]"),  # noqa: UP007 - as above
    ],
)
def test_types_have_names(tp, name):
    assert get_type_name(tp) == name


def test_spellings_are_converted():
    assert cases.snake_to_camel("num_retries") == "numRetries"
    assert cases.snake_to_camel("a__b") == "aB"
    assert cases.camel_to_snake("numRetries") == "num_retries"
    assert cases.camel_to_snake("HTTPServer") == "httpserver"
    assert cases.camel_to_snake("a1B") == "a1_b"


@given(st.from_regex(r"[a-z]{2,}(_[a-z]{2,})*", fullmatch=True))
def test_snake_case_survives_camel_case(name):
    assert cases.camel_to_snake(cases.snake_to_camel(name)) == name


@pytest.mark.parametrize(
    ("tp", "text", "value"),
    [
        (str, "", ""),
        (int, "3", 3),
        (float, "1.5", 1.5),
        (bool, "Yes", True),
        (bool, "OFF", False),
        (list[str], "a,,b;", ["a", "b"]),
        (typing.List[str], "", []),  # noqa: UP006 - both spellings are accepted
        (dict[str, str], "a:1;b:2:3", {"a": "1", "b": "2:3"}),
        (dict[str, str], "a:1,", {"a": "1"}),
        (dict[str, str], "", {}),
    ],
)
def test_values_are_read_from_text(tp, text, value):
    assert runopt(None, tp, False, "").cast_to_type(text) == value


@pytest.mark.parametrize(
    ("tp", "text", "error"),
    [
        (int, "x", "invalid literal"),
        (bool, " true", "is not a valid bool literal"),
        (dict[str, str], "a", "`a` is not a `key:value` pair"),
        (None, "x", "cannot be `None`"),
    ],
)
def test_text_of_another_type_is_refused(tp, text, error):
    with pytest.raises(ValueError, match=error):
        runopt(None, tp, False, "").cast_to_type(text)


def test_defaults_are_checked_when_an_option_is_added():
    opts = runopts()
    with pytest.raises(ValueError, match="Required option: k must not specify default value"):
        opts.add("k", type_=int, default=1, required=True, help="")
    with pytest.raises(TypeError, match=r"Option: k, must be of type: .*Given: x"):
        opts.add("k", type_=int, default="x", help="")


def test_is_type_takes_generics():
    assert runopts.is_type(["a"], list[str])
    assert runopts.is_type([], list[str])
    assert not runopts.is_type([1], list[str])
    assert runopts.is_type({"a": "b"}, dict[str, str])
    assert not runopts.is_type(None, str)


def test_options_are_found_in_camel_case(opts):
    assert opts.get("runAs") is opts.get("run_as")
    assert opts.get("nope") is None
    assert opts.canonical_key("runAs") == "run_as"
    assert len(opts) == 3
    assert [name for name, _ in opts] == ["run_as", "priority", "tags"]


def test_options_are_joined(opts):
    other = runopts()
    other.add("priority", type_=int, default=1, help="other")
    assert (opts | other).resolve({"run_as": "me"})["priority"] == 1
    assert opts.resolve({"run_as": "me"})["priority"] == 10


def test_resolving_fills_in_defaults_and_leaves_what_was_given(opts):
    given = {"runAs": "me", "priority": None}
    assert opts.resolve(given) == {"run_as": "me", "priority": None, "tags": ["a"]}
    assert given == {"runAs": "me", "priority": None}
    opts.resolve({"run_as": "me"})["tags"].append("b")
    assert opts.resolve({"run_as": "me"})["tags"] == ["a"]


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        ({}, "Required run option: run_as, must be provided and not `None`. Given: <EMPTY>"),
        ({"run_as": None}, "Required run option: run_as"),
        ({"run_as": "a", "priority": "x"}, r"must be of type: int, but was: x \(str\)"),
        (
            {"run_as": "a", "runAs": "b"},
            r"passed under two spellings \(`run_as` and `runAs`\) with conflicting values",
        ),
        ({"run_as": "a", "priorty": 1}, "Unknown run option `priorty`.*Did you mean `priority`?"),
    ],
)
def test_wrong_options_are_refused(opts, cfg, text):
    with pytest.raises(InvalidRunConfigException, match=text):
        opts.resolve(cfg)


def test_unknown_options_may_pass(opts):
    assert opts.resolve({"run_as": "a", "x": 1}, ignore_unknown=True)["x"] == 1
    assert opts.resolve({"run_as": "a", "runAs": "a"})["run_as"] == "a"


@pytest.mark.parametrize(
    ("text", "cfg"),
    [
        ("", {}),
        ("K=a,J=b", {"K": ["a"], "J": "b"}),
        ("K=a;b;J=d", {"K": ["a", "b"], "J": "d"}),
        ("K=a,b;J=d", {"K": ["a", "b"], "J": "d"}),
        ("K=a;b,J=d", {"K": ["a", "b"], "J": "d"}),
        ("K=a,b;", {"K": ["a", "b"]}),
        ("E=f:b,F:B", {"E": {"f": "b", "F": "B"}}),
        ("J='x=1,y=2'", {"J": "x=1,y=2"}),
        ("K=''", {"K": []}),
        ("UNKNOWN=1", {}),
    ],
)
def test_options_are_read_from_text(text, cfg, caplog):
    opts = runopts()
    opts.add("K", type_=list[str], help="")
    opts.add("J", type_=str, required=True, help="")
    opts.add("E", type_=dict[str, str], help="")
    assert opts.cfg_from_str(text) == cfg
    assert ("UNKNOWN" in caplog.text) == ("UNKNOWN" in text)


@pytest.mark.parametrize("text", ["priority", "priority=x", "run_as"])
def test_text_that_holds_no_options_is_refused(opts, text):
    with pytest.raises(ValueError, match=r"priority|run_as"):
        opts.cfg_from_str(text)


PLAIN = st.text("abcXYZ019_./", min_size=1)


@given(st.integers(), st.lists(PLAIN, min_size=1), PLAIN)
def test_options_survive_their_text(number, items, text):
    opts = runopts()
    opts.add("number", type_=int, help="")
    opts.add("items", type_=list[str], help="")
    opts.add("text", type_=str, help="")
    cfg = {"number": number, "items": items, "text": text}
    encoded = f"number={number},items={';'.join(items)},text={text}"
    assert opts.resolve(opts.cfg_from_str(encoded)) == cfg


@given(st.text("ab=,;'\"\\ "))
def test_any_text_is_read_or_refused(text):
    opts = runopts()
    opts.add("a", type_=str, help="")
    try:
        cfg = opts.cfg_from_str(text)
    except ValueError:
        return
    assert set(cfg) <= {"a"}


def test_options_are_read_from_json(opts):
    text = '{"runAs": "me", "tags": [1, "b"], "priority": null}'
    assert opts.cfg_from_json_repr(text) == {"run_as": "me", "tags": ["1", "b"], "priority": None}
    with pytest.raises(InvalidRunConfigException):
        opts.cfg_from_json_repr('{"x": 1}')
    assert opts.cfg_from_json_repr('{"x": 1}', ignore_unknown=True) == {}
    with pytest.raises(ValueError, match="must be a JSON object"):
        opts.cfg_from_json_repr("[]")


def test_the_help_text_has_its_shape(opts):
    assert repr(opts) == (
        "    usage:\n"
        "        run_as=RUN_AS,[priority=PRIORITY],[tags=TAGS]\n"
        "\n"
        "    required arguments:\n"
        "        run_as=RUN_AS (str)\n"
        "            run as user\n"
        "\n"
        "    optional arguments:\n"
        "        priority=PRIORITY (int, 10)\n"
        "            job priority\n"
        "        tags=TAGS (list, ['a'])\n"
        "            tags"
    )


def test_groups_without_options_are_left_out_of_the_help():
    opts = runopts()
    assert repr(opts) == "    usage:\n        "
    opts.add("a", type_=str, required=True, help="h")
    assert repr(opts) == (
        "    usage:\n        a=A\n\n    required arguments:\n        a=A (str)\n            h"
    )


def test_an_error_names_the_option_and_what_was_given(opts):
    with pytest.raises(InvalidRunConfigException) as caught:
        opts.resolve({"run_as": "a", "priority": "x"})
    assert caught.value.cfg_key == "priority"
    assert str(caught.value) == (
        "Run option: priority, must be of type: int, but was: x (str)."
        " Given: {'run_as': 'a', 'priority': 'x'}"
    )
    assert str(InvalidRunConfigException("why", "k", {})) == "why. Given: <EMPTY>"
    with pytest.raises(InvalidRunConfigException) as caught:
        runopts().resolve({"x": 1})
    assert str(caught.value) == (
        "Unknown run option `x`. Valid options are: (none declared). Given: {'x': 1}"
    )


def test_types_are_checked_as_python_does():
    opts = runopts()
    opts.add("n", type_=int, help="")
    opts.add("x", type_=float, help="")
    assert opts.resolve({"n": True})["n"] is True
    with pytest.raises(InvalidRunConfigException):
        opts.resolve({"x": 1})
    assert runopts.is_type({}, list[str])  # the kind of container is not compared
    assert not runopts.is_type("ab", list[str])
    assert not runopts.is_type({"a": 1}, dict[str, str])


def test_given_options_come_first_and_an_option_may_be_replaced(opts):
    assert list(opts.resolve({"tags": ["b"], "run_as": "a"})) == ["tags", "run_as", "priority"]
    opts.add("priority", type_=str, help="now a text")
    assert opts.get("priority").opt_type is str
    assert [name for name, _ in opts] == ["run_as", "priority", "tags"]
    with pytest.raises(ValueError, match=r"^Required option: k must not .* value. Given: 1$"):
        opts.add("k", type_=int, default=1, required=True, help="")


def test_options_may_be_updated_in_place(opts):
    other = runopts()
    other.add("new", type_=int, default=1, help="")
    opts.update(other)
    assert opts.resolve({"run_as": "a"})["new"] == 1


def test_a_registered_camel_case_is_found_as_it_is_only():
    opts = runopts()
    opts.add("bTrue", type_=bool, help="")
    assert opts.get("bTrue") is not None
    assert opts.get("b_true") is None


def test_text_may_spell_options_in_camel_case(opts):
    assert opts.cfg_from_str("runAs=me") == {"run_as": "me"}
    assert opts.cfg_from_str("runAs=me,run_as=me") == {"run_as": "me"}
    with pytest.raises(InvalidRunConfigException, match="under two spellings"):
        opts.cfg_from_str("runAs=me,run_as=you")
    with pytest.raises(InvalidRunConfigException, match="under two spellings"):
        opts.cfg_from_json_repr('{"runAs": "me", "run_as": "you"}')


def test_json_that_cannot_be_read_is_refused(opts):
    with pytest.raises(InvalidInput, match=r"`\{` is not JSON"):
        opts.cfg_from_json_repr("{")
    assert opts.cfg_from_json_repr('{"priority": "3", "tags": "x"}') == {
        "priority": "3",
        "tags": "x",
    }


def test_mappings_in_json_become_text():
    opts = runopts()
    opts.add("env", type_=dict[str, str], help="")
    assert opts.cfg_from_json_repr('{"env": {"a": 1}}') == {"env": {"a": "1"}}


VALUES = st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text(), max_size=3))


@given(st.dictionaries(st.sampled_from(["runAs", "run_as", "priority", "tags", "x"]), VALUES))
def test_any_mapping_is_resolved_or_refused(cfg):
    opts = runopts()
    opts.add("run_as", type_=str, required=True, help="run as user")
    opts.add("priority", type_=int, default=10, help="job priority")
    opts.add("tags", type_=list[str], default=["a"], help="tags")
    before = dict(cfg)
    try:
        resolved = opts.resolve(cfg)
    except InvalidRunConfigException:
        assert cfg == before
        return
    assert set(resolved) == {"run_as", "priority", "tags"}
    assert opts.resolve(resolved) == resolved
