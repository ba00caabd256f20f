"""The text of a request is what PyYAML makes of it, whatever is in it."""

import itertools
import json

import pytest
import yaml

from torchx.schedulers.docker_scheduler import DockerContainer, DockerJob, create_scheduler
from torchx.specs import AppDef, BindMount, Resource, Role, macros

WORDS = ["true", "No", "ON", "null", "~", "y", "n", "=", "<<", "yEs", "", "x", "nan", ".inf"]
NUMBERS = ["0", "7", "007", "1_000", "1e3", "0x1F", "12:30", "2026-01-02", "-1", "+1", "1.5", "٣"]
MARKS = [
    "a:", "a: b", "a:b", ":a", "a #b", "a#b", "#a", "- a", "-a", "a-", "--- a", "---", "...", "@a",
    "a@b", "`a`", "%a", "!a", "&a", "*a", "|", ">", "[a]", "{a}", "a,b", "a=b", "?a", "? a", "a ",
]  # fmt: skip
TEXTS = [
    "it's",
    'say "hi"',
    "two\nlines",
    "tab\there",
    "\x07",
    "火",
    "größe",
    "a\\b",
    "http://h:1/p",
]
ALL = [*WORDS, *NUMBERS, *MARKS, *TEXTS, "x" * 200, "two  words " * 20]


def as_pyyaml(job: DockerJob) -> str:
    containers = [{"image": c.image, "command": c.command, **c.kwargs} for c in job.containers]
    text: str = yaml.safe_dump(containers, sort_keys=False, allow_unicode=True, width=1 << 20)
    return text


def job(*containers: DockerContainer) -> DockerJob:
    return DockerJob("x", [*containers])


@pytest.mark.parametrize("text", ALL)
def test_every_text_is_written_as_pyyaml_does(text):
    found = job(
        DockerContainer(
            text,
            [text, "run", text],
            {
                "name": text,
                "labels": {"a": text, text: "b"},
                "mounts": [{"Target": text, "ReadOnly": False}],
                "devices": [],
                "device_requests": [{"Capabilities": [["compute", text]], "Options": {}}],
                "privileged": True,
                "nano_cpus": 1,
                "weight": 0.5,
                "nothing": None,
                "empty": {},
            },
        )
    )
    assert str(found) == repr(found) == as_pyyaml(found)


def test_texts_in_an_environment_are_quoted_so_that_secrets_are_found():
    values = dict(zip((f"V{i}" for i in itertools.count()), ALL, strict=False))
    found = job(DockerContainer("i", [], {"environment": {**values, "yes": "x", "A B": "y"}}))
    (entry,) = yaml.safe_load(str(found))
    assert entry["environment"] == {**values, "yes": "x", "A B": "y"}
    for value in ("it's", 'say "hi"', "two\nlines", "a\\b"):
        assert json.dumps(value) in str(found)


def test_containers_that_are_nearly_the_same_differ_in_what_they_differ_in():
    containers = [
        DockerContainer(
            "i:3",
            ["run", "--id", str(k), f"a: {k}"],
            {
                "name": f"job-{k}",
                "environment": {"SAME": "v", "ID": str(k), "ODD": f"# {k}"},
                "mounts": [{"Target": f"/{k % 2}"}],
                "weight": k % 2 == 0,
            },
        )
        for k in range(20)
    ]
    found = job(*containers)
    assert str(found) == as_pyyaml(found)
    containers[3].kwargs["environment"]["SAME"] = "other"
    assert str(found) == as_pyyaml(found)


def test_odd_keys_are_written_as_pyyaml_does():
    found = job(DockerContainer("i", [], {"yes": "a", "a b": ["x"], "on": {"k": "v"}}))
    assert str(found) == as_pyyaml(found)


def test_values_that_are_no_plain_data_are_written_as_text():
    class Text(str):
        pass

    found = job(DockerContainer("i", [Text("x")], {"a": {1, 2}, "b": AppDef, "c": {3: Text("y")}}))
    (entry,) = yaml.safe_load(str(found))
    assert entry["command"] == ["x"]
    assert entry["a"] == {1, 2}
    assert "AppDef" in entry["b"]
    assert entry["c"] == {3: "y"}


def test_one_value_in_two_places_is_written_twice():
    shared = ["a", "b"]
    text = str(job(DockerContainer("i", shared, {"devices": shared, "mounts": [{"x": shared}]})))
    assert "&id" not in text
    assert "火" in str(job(DockerContainer("火", [], {})))
    assert yaml.safe_load(str(job())) == []


def test_what_pyyaml_is_asked_for_does_not_grow_with_the_replicas(monkeypatch):
    dump, calls = yaml.dump, []

    def counted(*args, **more):
        calls.append(args)
        return dump(*args, **more)

    monkeypatch.setattr(yaml, "dump", counted)
    role = Role(
        "trainer",
        "i:3",
        entrypoint="python",
        args=["-m", "train", "--id", macros.replica_id, "--app", macros.app_id, "# odd"],
        env={"ID": macros.replica_id, "NAME": f"{macros.app_id}-{macros.replica_id}", "ODD": "# x"},
        resource=Resource(1, 1, 64),
        mounts=[BindMount("/a", "/b")],
    )
    counts = []
    for replicas in (2, 1000):
        role.num_replicas = replicas
        text = str(create_scheduler("test").submit_dryrun(AppDef("job", [role]), {}))
        assert text.count("\n- image:") == replicas - 1
        counts.append(len(calls))
        calls.clear()
    assert counts[0] == counts[1] < 20
