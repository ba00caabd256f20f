"""What would be sent to Docker, without Docker."""

import copy
import logging
import subprocess
import sys

import pytest

import torchx
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.docker_scheduler import (
    LABEL_APP_ID,
    DockerContainer,
    Opts,
    _to_str,
    create_scheduler,
)
from torchx.schedulers.docker_scheduler._request import build_request, container_name
from torchx.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)


def build(*roles, app_id="job-x1", opts=None, environ=None):
    return build_request(AppDef("job", [*roles]), app_id, opts or Opts(), environ or {})


def role(name="tr", **more):
    return Role(name, more.pop("image", "i:3"), entrypoint="run", **more)


def test_a_container_has_what_the_role_says():
    tr = role(
        num_replicas=2,
        args=["--id", macros.replica_id, macros.app_id, macros.rank0_env, f"[{macros.img_root}]"],
        env={"A": f"{macros.app_id}/{macros.replica_id}"},
        resource=Resource(cpu=0.5, gpu=1, memMB=64, devices={"vpc.amazonaws.com/efa": 1}),
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
        mounts=[
            BindMount("/s", "/d", read_only=True),
            VolumeMount("vol", "/v"),
            DeviceMount("/dev/a", "/dev/b", "rw"),
        ],
    )
    job = build(tr)
    assert job.app_id == "job-x1"
    assert job.containers[1] == DockerContainer(
        "i:3",
        ["run", "--id", "1", "job-x1", "TORCHX_RANK0_HOST", "[]"],
        {
            "name": "job-x1-tr-1",
            "hostname": "job-x1-tr-1",
            "environment": {
                "A": "job-x1/1",
                "TORCHX_RANK0_HOST": "job-x1-tr-0",
                "TORCHX_IMAGE": "i:3",
            },
            "labels": {
                "torchx.pytorch.org/version": torchx.__version__,
                "torchx.pytorch.org/app-id": "job-x1",
                "torchx.pytorch.org/on-failure": "end",
                "torchx.pytorch.org/role-name": "tr",
                "torchx.pytorch.org/max-retries": "1",
                "torchx.pytorch.org/replica-id": "1",
            },
            "privileged": False,
            "network": "torchx",
            "mounts": [
                {"Target": "/d", "Source": "/s", "Type": "bind", "ReadOnly": True},
                {"Target": "/v", "Source": "vol", "Type": "volume", "ReadOnly": False},
            ],
            "devices": ["/dev/a:/dev/b:rw", "/dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rwm"],
            "restart_policy": {"Name": "on-failure", "MaximumRetryCount": 1},
            "mem_limit": "64m",
            "shm_size": "64m",
            "nano_cpus": 500_000_000,
            "device_requests": [
                {
                    "Driver": "",
                    "Count": 1,
                    "DeviceIDs": [],
                    "Capabilities": [["compute", "utility"]],
                    "Options": {},
                }
            ],
        },
    )


def test_mounts_and_gpus_equal_the_types_of_the_sdk():
    types = pytest.importorskip("docker.types", reason="needs the Python package docker")
    tr = role(resource=Resource(1, 2, 1), mounts=[BindMount("/s", "/d"), VolumeMount("v", "/w")])
    kwargs = build(tr).containers[0].kwargs
    assert kwargs["mounts"] == [
        types.Mount("/d", "/s", type="bind", read_only=False),
        types.Mount("/w", "v", type="volume", read_only=False),
    ]
    request = types.DeviceRequest(count=2, capabilities=[["compute", "utility"]])
    assert kwargs["device_requests"] == [request]


def test_what_a_role_leaves_open_is_left_to_docker():
    (container,) = build(role()).containers
    assert container.kwargs.keys() == {
        "name", "hostname", "environment", "labels", "privileged", "network", "mounts", "devices",
    }  # fmt: skip
    assert (container.kwargs["mounts"], container.kwargs["devices"]) == ([], [])


def test_neuron_devices_are_mounted():
    devices = {"aws.amazon.com/neurondevice": 2}
    (container,) = build(role(resource=Resource(1, 0, 1, devices=devices))).containers
    assert container.kwargs["devices"] == ["/dev/neuron0:/dev/neuron0:rwm",
                                           "/dev/neuron1:/dev/neuron1:rwm"]  # fmt: skip


def test_a_mount_of_another_kind_is_a_type_error():
    with pytest.raises(TypeError, match="'/tmp' is not a mount"):
        build(role(mounts=["/tmp"]))


def test_roles_and_replicas_come_in_order_and_know_the_first_host():
    job = build(role("b", num_replicas=2), role("a"))
    names = [c.kwargs["name"] for c in job.containers]
    assert names == ["job-x1-b-0", "job-x1-b-1", "job-x1-a-0"]
    firsts = {c.kwargs["environment"]["TORCHX_RANK0_HOST"] for c in job.containers}
    assert firsts == {"job-x1-b-0"}


@pytest.mark.parametrize(
    ("app_id", "name", "k", "expected"),
    [
        ("job-x1", "tr", 0, "job-x1-tr-0"),
        ("a" * 40 + "-x1", "r" * 40, 3, "a" * 27 + "-x1-" + "r" * 30 + "-3"),
        ("abcd-" + "e" * 29, "tr", 0, "e" * 29 + "-tr-0"),
        ("ab-_." + "e" * 27, "tr", 0, "e" * 27 + "-tr-0"),
        ("a" * 40 + "-x1", "r" * 40, 9999, "a" * 24 + "-x1-" + "r" * 30 + "-9999"),
    ],
)
def test_names_are_host_names_of_at_most_63_characters(app_id, name, k, expected):
    assert container_name(app_id, name, k) == expected
    assert len(expected) <= 63


def test_the_first_host_is_the_name_of_its_container_also_when_that_is_stripped():
    job = build(role(), app_id="abcd-" + "e" * 29)
    (container,) = job.containers
    assert container.kwargs["environment"]["TORCHX_RANK0_HOST"] == container.kwargs["name"]


@pytest.mark.parametrize("bad", ["my job", "a/b", "größe", "a\nb"])
def test_names_that_docker_refuses_are_refused_at_once(bad):
    with pytest.raises(InvalidInput, match="use letters, digits"):
        build(role(bad))
    with pytest.raises(InvalidInput, match="use letters, digits"):
        build(role(), app_id=f"{bad}-x1")


def test_roles_whose_containers_would_have_one_name_are_refused():
    with pytest.raises(InvalidInput, match="differ in the first 30 characters"):
        build(role("r" * 30 + "a"), role("r" * 30 + "b"))
    with pytest.raises(InvalidInput, match="job-x1-tr-0"):
        build(role(), role())


def test_variables_come_from_the_user_the_option_and_the_role_in_this_order():
    opts = Opts(copy_env=["FOO_*", "B?R"], env={"BAR": "opt", "BAZ": "opt", "X": "opt"})
    environ = {"FOO_1": "user", "foo_2": "user", "BAR": "user", "BAAR": "user"}
    tr = role(env={"BAZ": "role", "TORCHX_IMAGE": "mine", "TORCHX_RANK0_HOST": "mine"})
    (container,) = build(tr, opts=opts, environ=environ).containers
    assert container.kwargs["environment"] == {
        "FOO_1": "user", "BAR": "opt", "BAZ": "role", "X": "opt",
        "TORCHX_RANK0_HOST": "job-x1-tr-0", "TORCHX_IMAGE": "i:3",
    }  # fmt: skip


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "x\0"}, {"A": 3}])
def test_variables_that_cannot_be_set_are_refused(env):
    with pytest.raises(InvalidInput, match="cannot be set"):
        build(role(), opts=Opts(env=env))
    with pytest.raises(InvalidInput, match="`tr`"):
        create_scheduler("test").submit_dryrun(AppDef("job", [role(env=env)]), {})


def test_privileges_are_asked_for_by_option():
    assert build(role(), opts=Opts(privileged=True)).containers[0].kwargs["privileged"] is True


def test_a_policy_that_restarts_a_role_is_refused():
    scheduler = create_scheduler("test")
    app = AppDef("job", [role(max_retries=1, retry_policy=RetryPolicy.ROLE)])
    with pytest.raises(UnsupportedRequest, match=r"cannot retry by policy ROLE, it knows: REPLICA"):
        scheduler.submit_dryrun(app, {})
    app.roles[0].max_retries = 0  # without retries it asks for nothing
    scheduler.submit_dryrun(app, {})


def test_a_policy_that_restarts_the_application_warns_where_that_is_more_than_docker_does(caplog):
    with caplog.at_level(logging.WARNING):
        build(role(max_retries=1))
        assert caplog.text == ""
        build(role(max_retries=1, num_replicas=2))
    assert "restarts its container alone" in caplog.text


def test_replicas_share_nothing_that_can_be_changed():
    tr = role(
        num_replicas=2,
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
        resource=Resource(1, 1, 1),
        mounts=[BindMount("/s", "/d"), DeviceMount("/dev/a", "/dev/a")],
    )
    before = copy.deepcopy(tr)
    first, second = build(tr).containers
    untouched = copy.deepcopy(second)
    first.command.append("x")
    for value in first.kwargs.values():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    item.clear()
            value.clear()
        elif isinstance(value, dict):
            value.clear()
    assert second == untouched
    assert tr == before


def test_a_dry_run_needs_no_sdk_and_no_daemon():
    code = """
import sys
sys.modules["docker"] = None
from torchx.schedulers.docker_scheduler import create_scheduler, has_docker
from torchx.specs import *
scheduler = create_scheduler("test", unknown=1)
role = Role("r", "i", entrypoint="e", mounts=[BindMount("/a", "/b")], resource=Resource(1, 1, 1))
print(scheduler.submit_dryrun(AppDef("x", [role]), {}))
scheduler.run_opts()
assert not has_docker()
scheduler.close()
try:
    scheduler.list()
except ModuleNotFoundError as err:
    print(err)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Source: /a" in done.stdout
    assert "pip install 'torchx[docker]'" in done.stdout


def test_a_request_with_any_options_object_is_built():
    scheduler = create_scheduler("test")
    app = AppDef("x", [role()])
    for cfg in ({}, {"env": {"A": "1"}}, Opts(env={"A": "1"})):
        info = scheduler.submit_dryrun(app, cfg)
        env = info.request.containers[0].kwargs["environment"]
        assert env.get("A") == (cfg.get("env") or {}).get("A")
        assert info.request.containers[0].kwargs["labels"][LABEL_APP_ID] == info.request.app_id


def test_what_becomes_of_the_others_after_a_failure_is_a_label():
    for value in ("end", "wait"):
        (container,) = build(role(), opts=Opts(on_failure=value)).containers
        assert container.kwargs["labels"]["torchx.pytorch.org/on-failure"] == value
    with pytest.raises(InvalidInput, match="`on_failure` is `end` or `wait`, given: `stop`"):
        build(role(), opts=Opts(on_failure="stop"))


def test_stable_ids_can_be_had(monkeypatch):
    monkeypatch.setattr("torchx.schedulers.docker_scheduler.make_unique", lambda name: f"{name}-1")
    info = create_scheduler("test").submit_dryrun(AppDef("x", [role()]), {})
    assert info.request.app_id == "x-1"


def test_options_and_their_types():
    opts = dict(create_scheduler("test").run_opts())
    assert {name: (o.opt_type, o.default) for name, o in opts.items()} == {
        "copy_env": (list[str], None),
        "env": (dict[str, str], None),
        "privileged": (bool, False),
        "on_failure": (str, "end"),
        "image_builder": (str, "auto"),
        "image_repo": (str, None),
        "quiet": (bool, False),
    }


def test_text_and_bytes_become_text():
    assert (_to_str("a"), _to_str(b"\xc3\xa4\xff")) == ("a", "ä\ufffd")
