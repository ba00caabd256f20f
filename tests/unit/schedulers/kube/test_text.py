"""What is printed as YAML is what would be sent."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers._kube.apps.text import render_objects

odd = ["", "-", "- a", "a: b", "#c", "yes", "On", "null", "~", "1", "1e3", "0x1f", "2026-01-02"]
odder = ["a\nb\n", "\n", " a ", "'", '"', "%a", "@a", "!a", "&a", "*a", "{a", "[a", "a #b", "\x85 "]
texts = st.text(max_size=20) | st.sampled_from([*odd, *odder])
scalars = texts | st.booleans() | st.integers() | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


@given(st.lists(st.dictionaries(texts, values, max_size=3), min_size=1, max_size=2))
def test_the_text_says_what_the_objects_say(objects):
    assert [*yaml.safe_load_all(render_objects(objects))] == objects


def test_a_part_that_is_shared_is_written_wherever_it_is():
    part = {"a": [1, {"b": "x"}]}
    obj = {"first": part, "list": [part, [part]], "last": {"deep": part}}
    assert yaml.safe_load(render_objects([obj])) == obj
