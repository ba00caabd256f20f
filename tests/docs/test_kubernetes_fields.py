"""The table of what Kubernetes makes of each field of an app: it has all of them, and is true."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install 'torchx[docs]'")

EXTENSIONS = Path(__file__).parents[2] / "docs/_ext"


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(EXTENSIONS))
    try:
        import kubernetes_fields
    finally:
        sys.path.remove(str(EXTENSIONS))
    return kubernetes_fields


def test_every_field_of_an_app_is_changed_or_used_up_before(table):
    assert {*table.CHANGES, *table.BEFORE} == {*table.fields()}
    assert not {*table.CHANGES} & {*table.BEFORE}


def test_there_is_a_cell_for_every_kind_of_objects(table):
    rows = table.rows()
    assert [row[0] for row in rows] == [f"`{field}`" for field in table.fields()]
    assert {len(row) for row in rows} == {1 + len(table.BUILDS)}
    assert len(table.BUILDS) == 5


@pytest.mark.parametrize(
    ("kind", "field", "cell"),
    [
        ("`job`", "Role.args", "`command`"),
        ("`job`", "Role.retry_policy", "no effect"),
        ("`jobset`", "Role.min_replicas", "refused"),
        ("`volcano`", "Role.min_replicas", "`spec.tasks[].minAvailable`, `spec.policies`"),
        ("`volcano`", "Resource.tags", "no effect"),
        ("AppWrapper `v1beta1`", "Role.metadata", "`hostNetwork`"),
        ("AppWrapper `v1beta2`", "Role.num_replicas", "`completions`, `parallelism`"),
    ],
)
def test_a_cell_says_what_becomes_of_the_field(table, kind, field, cell):
    assert table.cell(table.BUILDS[kind], field) == cell


def test_places_are_those_that_differ(table):
    before = {"spec": {"template": {"spec": {"containers": [{"a": 1, "b": [1]}]}}}, "c": 1}
    after = {"spec": {"template": {"spec": {"containers": [{"a": 2, "b": [1, 2]}]}}}, "c": 1}
    assert [*table.differences(before, after)] == ["a", "b"]
    assert [*table.differences(before, before)] == []
