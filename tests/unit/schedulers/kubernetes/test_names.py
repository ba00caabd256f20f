"""Whatever apps and roles are called, the cluster accepts the names, and no two are the same."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.fake_kube.pod_env import expanded
from torchx.schedulers._kube.apps.labels import LABEL_CHARS, container_name, label_value
from torchx.schedulers._kube.apps.pods import escaped
from torchx.schedulers.ids import make_unique
from torchx.schedulers.kubernetes_scheduler._names import (
    app_name,
    job_names,
)

DNS_LABEL = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICE = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

odd_names = st.text(max_size=90) | st.from_regex("[-a-zA-Z0-9_.]{1,90}", fullmatch=True)
roles = st.lists(st.tuples(odd_names, st.integers(1, 1_000_000)), min_size=1, max_size=12)


@given(odd_names)
def test_an_app_has_the_name_of_a_service_with_its_random_end(name):
    unique = make_unique(name)
    made = app_name(unique)
    assert SERVICE.fullmatch(made)
    assert made.endswith(unique.rpartition("-")[2])


@given(odd_names, roles)
def test_hosts_of_all_replicas_are_labels_of_dns_and_differ(name, roles):
    names = job_names(app_name(make_unique(name)), roles)
    assert len({*names}) == len(roles)
    for job, (_, replicas) in zip(names, roles, strict=True):
        host = f"{job}-{replicas - 1}"
        assert DNS_LABEL.fullmatch(host)
        assert len(host) <= LABEL_CHARS


def test_roles_that_are_alike_once_they_fit_stay_apart():
    roles = [(name, 10) for name in ("a.b", "a-b", "A_B", "a-b-r2", "x" * 70 + "1", "x" * 70 + "2")]
    assert job_names("app-x1", roles) == [
        "app-x1-a-b",
        "app-x1-a-b-r1",
        "app-x1-a-b-r2",
        "app-x1-a-b-r2-r3",
        "app-x1-" + "x" * 54,
        "app-x1-" + "x" * 51 + "-r5",
    ]


@given(odd_names)
def test_names_of_containers_and_values_of_labels_are_accepted(name):
    assert DNS_LABEL.fullmatch(container_name(name))
    assert len(container_name(name)) <= LABEL_CHARS
    assert LABEL_VALUE.fullmatch(label_value(name))
    assert len(label_value(name)) <= LABEL_CHARS


@given(st.text(alphabet="$()Ax ", max_size=12))
def test_what_is_escaped_arrives_as_it_was(text):
    assert expanded(escaped(text), {"A": "replaced", "": "replaced"}) == text
