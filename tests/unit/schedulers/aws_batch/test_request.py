"""What would be registered and submitted, checked against botocore's model of the service."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_aws.batch import check_definition
from tests.fake_aws.model import assert_valid
from torchx.errors import InvalidInput, MountNotSupported, UnsupportedRequest
from torchx.schedulers.aws_batch_scheduler import (
    AWSBatchOpts,
    BatchJob,
    Opts,
    ResourceType,
    _parse_num_replicas,
    _parse_start_and_end_idx,
    _role_to_node_properties,
    create_scheduler,
    resource_from_resource_requirements,
    resource_requirements_from_resource,
)
from torchx.schedulers.aws_batch_scheduler._request import NAME_CHARS, build_request, job_name
from torchx.schedulers.aws_batch_scheduler._tags import Facts
from torchx.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    Role,
    VolumeMount,
    macros,
)
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")
SMALL = Resource(cpu=1, gpu=0, memMB=512)


def role(name="trainer", **more):
    more.setdefault("resource", SMALL)
    return Role(name, more.pop("image", "i:1"), entrypoint=more.pop("entrypoint", "run"), **more)


def checked(job):
    """The request, if the service would take it."""
    assert_valid("batch", "RegisterJobDefinition", job.job_def)
    check_definition(job.job_def)
    assert_valid("batch", "SubmitJob", job.submission(job.name))
    return job


def build(*roles, metadata=None, **opts):
    app = AppDef("My.App", [*roles], metadata or {})
    options = Opts(**{"queue": "gpu", **opts})
    return checked(build_request(app, "My.App-x1", options, Facts("me")))


def container(job, index=0):
    return job.containers[index]


def env(job, index=0):
    return {v["name"]: v["value"] for v in container(job, index)["environment"]}


def single():
    return build(role(args=["--id", macros.replica_id, "$(date) $$HOME"]))


def fargate():
    return build(
        role(mounts=[VolumeMount("fs-12ab/fsap-34cd", "/data")]),
        platform="fargate",
        assign_public_ip=True,
        execution_role_arn="arn:aws:iam::123456789012:role/exec",
    )


def full():
    kind = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    reader = role(
        "reader A",
        args=["--rank", f"r{macros.replica_id}", macros.app_id, f"$${{{macros.rank0_env}}}"],
        env={"ID": f"{macros.replica_id}/x", "PLAIN": "a b"},
        num_replicas=2,
        max_retries=2,
        resource=Resource(cpu=4, gpu=1, memMB=2048, capabilities=kind),
        mounts=[
            BindMount("/host", "/in", read_only=True),
            VolumeMount("fs-12ab:/models", "/models"),
            DeviceMount("/dev/fuse", "/dev/fuse", "rw"),
        ],
    )
    devices = {"vpc.amazonaws.com/efa": 2}
    trainer = role(
        num_replicas=3,
        args=[macros.replica_id],
        resource=Resource(cpu=8, gpu=8, memMB=4096, devices=devices),
    )
    return build(
        reader,
        trainer,
        metadata={"team": "vision (2)"},
        share_id="s1",
        priority=7,
        privileged=True,
        job_role_arn="arn:aws:iam::123456789012:role/job",
        execution_role_arn="arn:aws:iam::123456789012:role/exec",
        ulimits=["memlock:-1:-1", ""],
        timeout_s=3600,
        log_group="/team/jobs",
        secrets=["TOKEN=arn:aws:secretsmanager:eu-west-1:123456789012:secret:t"],
        tags={"cost": "42"},
        propagate_tags=True,
        on_failure="wait",
    )


@pytest.mark.parametrize("make", [single, fargate, full])
def test_whole_requests(make):
    """``UPDATE_GOLDEN=1`` writes the files anew; look at what has changed then."""
    job = make()
    text = str(job).replace(__version__, "VERSION")
    submission = yaml.safe_dump(job.submission(job.name), sort_keys=False)
    text += f"---\n{submission}".replace(__version__, "VERSION")
    path = GOLDEN / f"{make.__name__}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_text_is_yaml_of_the_request():
    job = full()
    assert str(job) == repr(job)
    assert yaml.safe_load(str(job))["job_def"] == job.job_def


def test_the_published_example():
    app = AppDef(
        "t",
        [
            Role(
                "w",
                image="i",
                entrypoint="sh",
                args=["-c", "run"],
                num_replicas=2,
                resource=Resource(cpu=2, gpu=1, memMB=512),
            )
        ],
    )
    job = build_request(app, "t-x", Opts(queue="q"), Facts("me"))
    properties = checked(job).job_def["nodeProperties"]
    assert (properties["numNodes"], properties["mainNode"]) == (2, 0)
    (group,) = properties["nodeRangeProperties"]
    assert group["targetNodes"] == "0:1"
    assert group["container"] == {
        "command": ["sh", "-c", "run"],
        "environment": [
            {"name": "TORCHX_ROLE_IDX", "value": "0"},
            {"name": "TORCHX_ROLE_NAME", "value": "w"},
            {"name": "TORCHX_IMAGE", "value": "i"},
        ],
        "image": "i",
        "privileged": False,
        "resourceRequirements": [
            {"type": "VCPU", "value": "2"},
            {"type": "MEMORY", "value": "512"},
            {"type": "GPU", "value": "1"},
        ],
        "linuxParameters": {"sharedMemorySize": 512, "devices": []},
        "logConfiguration": {"logDriver": "awslogs"},
        "mountPoints": [],
        "volumes": [],
    }
    assert job.app_id == "q:t-x"


def test_the_app_is_left_as_it_is():
    app = AppDef("a", [role(env={"A": "1"}, num_replicas=2)], {"k": "v"})
    before = copy.deepcopy(app)
    build_request(app, "a-x", Opts(queue="q"), Facts("me"))
    assert app == before


# -- commands -----------------------------------------------------------------------------------


def run_command(job, index=0, **variables):
    """What the command of a role prints, on a node with these variables."""
    fixed = {"PATH": os.environ["PATH"], **env(job, index), **variables}
    done = subprocess.run(container(job, index)["command"], env=fixed, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
ODD = ["", " a  b ", "it's", '"x"', "$HOME $(id) `id` $$", "\\n", "new\nline", "ü火", "*?~#", "-n"]


def printer(name="w", *args, **more):
    return role(name, entrypoint=sys.executable, args=["-c", PRINT, *args], **more)


def test_no_shell_where_nothing_needs_one():
    job = build(role(args=["$(date)"], num_replicas=2), role("b", num_replicas=1))
    assert container(job)["command"] == ["run", "$(date)"]
    assert container(build(role(args=[macros.replica_id])))["command"] == ["run", "0"]
    one_of_many = build(role(num_replicas=2), role("b", args=[macros.replica_id]))
    assert container(one_of_many, 1)["command"] == ["run", "0"]


@pytest.mark.parametrize("node", [2, 3])
def test_the_id_is_that_in_the_role(node):
    odd = [text.replace("$", "$$") for text in ODD]
    b = printer("b", f"{macros.replica_id}", f"x'{macros.replica_id}${{y}}", *odd, num_replicas=2)
    b.env = {"ID": f"a b{macros.replica_id}'", "OTHER": "$$HOME"}
    job = build(role(num_replicas=2), b)
    args, environ = run_command(job, 1, AWS_BATCH_JOB_NODE_INDEX=str(node))
    k = node - 2
    assert args == [f"{k}", f"x'{k}${{y}}", *ODD]
    assert (environ["ID"], environ["OTHER"]) == (f"a b{k}'", "$HOME")
    assert "torchx_k" not in environ


def test_rank0_is_told_on_the_main_node_and_on_others():
    job = build(printer("w", macros.rank0_env, num_replicas=2), printer("b", macros.rank0_env))
    name = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
    args, environ = run_command(job, AWS_BATCH_JOB_NODE_INDEX="0")
    assert (args, environ[name]) == ([name], "localhost")
    args, environ = run_command(job, AWS_BATCH_JOB_NODE_INDEX="1", **{name: "10.0.0.1"})
    assert (args, environ[name]) == ([name], "10.0.0.1")
    assert container(job, 1)["command"][0] == sys.executable  # the service tells it there


def test_rank0_of_one_container_is_itself():
    args, environ = run_command(build(printer("w", macros.rank0_env)))
    assert environ[args[0]] == "localhost"


def test_a_variable_that_is_empty_arrives_although_the_service_drops_it():
    job = build(printer(env={"EMPTY": "", "FULL": "x"}))
    assert env(job).get("EMPTY") is None
    _, environ = run_command(job)
    assert (environ["EMPTY"], environ["FULL"]) == ("", "x")


@pytest.mark.parametrize("attempt", [1, 3])
def test_the_attempt_is_told_where_there_may_be_several(attempt):
    job = build(printer(max_retries=2))
    _, environ = run_command(job, AWS_BATCH_JOB_ATTEMPT=str(attempt))
    assert environ["TORCHX_ATTEMPT"] == str(attempt - 1)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)))
def test_any_text_stays_as_it_is_in_a_shell(texts):
    escaped = [text.replace("$", "$$") for text in texts]
    job = build(role(args=[macros.replica_id, *escaped], num_replicas=2))
    (line,) = container(job)["command"][2:]
    printed = subprocess.run(
        ["sh", "-c", line.replace("exec run", "printf '%s\\0'")],
        env={"AWS_BATCH_JOB_NODE_INDEX": "1", "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    ).stdout
    assert printed.decode().split("\0")[:-1] == ["1", *texts]


def test_reserved_variables_are_refused():
    with pytest.raises(InvalidInput, match="AWS_BATCH_JOB_ID"):
        build(role(env={"AWS_BATCH_JOB_ID": "x"}))


def test_a_variable_that_no_shell_can_set_is_refused_where_it_differs():
    build(role(env={"a.b": "x"}, num_replicas=2))
    with pytest.raises(InvalidInput, match=r"`a\.b`"):
        build(role(env={"a.b": macros.replica_id}, num_replicas=2))


# -- names and tags -----------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=300), st.text("abc123", min_size=1, max_size=13))
def test_every_name_is_one_that_the_service_takes(name, end):
    found = job_name(f"{name}-{end}")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", found)
    assert len(found) <= NAME_CHARS
    assert found.endswith(f"-{end}")


def test_tags_are_made_to_fit_and_the_apps_own_win(caplog):
    job = build(
        role(),
        metadata={"torchx.pytorch.org/user": "other", "note": "a,b" + "x" * 300},
        tags={"note": "lost", "t": "1"},
    )
    tags = job.job_def["tags"]
    assert tags["torchx.pytorch.org/user"] == "other"
    assert tags["note"] == "a_b" + "x" * 253
    assert tags["torchx.pytorch.org/version"] == __version__
    assert tags["torchx.pytorch.org/app-name"] == "My.App"
    assert "`note`" in caplog.text


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"aws:x": "1"}, "aws:x"),
        ({str(i): "x" for i in range(60)}, "50 tags"),
        ({"": "x"}, "empty"),
    ],
)
def test_tags_that_cannot_be_are_refused(metadata, words):
    with pytest.raises(InvalidInput, match=words):
        build(role(), metadata=metadata)


def test_a_queue_may_be_an_arn():
    arn = "arn:aws:batch:eu-west-1:123456789012:job-queue/gpu"
    job = build(role(), queue=arn)
    assert job.app_id == f"gpu:{job.name}"
    assert job.submission(job.name)["jobQueue"] == arn


# -- retries, spot, platforms ------------------------------------------------------------------


def test_retries_are_counted_beside_the_first_attempt():
    assert build(role()).job_def["retryStrategy"]["attempts"] == 1
    strategy = build(role(max_retries=1), role("b", max_retries=9)).job_def["retryStrategy"]
    assert strategy == {
        "attempts": 10,
        "evaluateOnExit": [{"onExitCode": "0", "action": "EXIT"}],
    }
    with pytest.raises(InvalidInput, match="`max_retries` can be 9, given: 10"):
        build(role(max_retries=10))


def test_spot_starts_again_what_was_taken_away_and_nothing_else():
    strategy = build(role(), spot=True).job_def["retryStrategy"]
    assert strategy["attempts"] == 10
    assert [rule["action"] for rule in strategy["evaluateOnExit"]] == ["RETRY", "EXIT"]
    with pytest.raises(InvalidInput, match="`max_retries`"):
        build(role(max_retries=1), spot=True)
    with pytest.raises(UnsupportedRequest, match="spot"):
        build(role(num_replicas=2), spot=True)


def test_one_type_of_instances_for_all():
    def typed(name, kind):
        capabilities = {"node.kubernetes.io/instance-type": kind}
        return role(name, resource=Resource(1, 0, 512, capabilities=capabilities))

    job = build(typed("a", "p3.2xlarge"), role("b"))
    assert [c["instanceType"] for c in job.containers] == ["p3.2xlarge"] * 2
    assert build(typed("a", "p3.2xlarge")).job_def["type"] == "multinode"
    with pytest.raises(InvalidInput, match=r"p3\.2xlarge.*m5\.large"):
        build(typed("a", "p3.2xlarge"), typed("b", "m5.large"))


FARGATE = {"platform": "fargate", "execution_role_arn": "arn:aws:iam::1:role/x"}


@pytest.mark.parametrize(
    ("cpu", "memory", "size"),
    [(1, 512, ("1", "2048")), (1, 9000, ("2", "9216")), (3, 100, ("4", "8192"))],
)
def test_the_smallest_size_of_fargate_that_holds_the_resource(cpu, memory, size):
    job = build(role(resource=Resource(cpu, 0, memory)), **FARGATE)
    assert tuple(r["value"] for r in container(job)["resourceRequirements"]) == size


@pytest.mark.parametrize(
    ("more", "opts", "words"),
    [
        ({"num_replicas": 2}, {}, "multi-node"),
        ({"resource": Resource(1, 1, 512)}, {}, "no GPUs"),
        ({"resource": Resource(32, 0, 512)}, {}, "32 CPUs"),
        ({"mounts": [BindMount("/a", "/b")]}, {}, "mounts of the host"),
        ({}, {"privileged": True}, "privileged"),
        ({}, {"ulimits": ["a:1:1"]}, "ulimits"),
        ({}, {"execution_role_arn": None}, "execution_role_arn"),
    ],
)
def test_what_fargate_does_not_have_is_refused(more, opts, words):
    with pytest.raises((InvalidInput, UnsupportedRequest), match=words):
        build(role(**more), **{**FARGATE, **opts})


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"queue": ""}, "`queue`"),
        ({"platform": "lambda"}, "ec2, fargate, given: `lambda`"),
        ({"priority": 10_000}, "0 to 9999"),
        ({"timeout_s": 59}, "60 seconds at least"),
        ({"job_role_arn": "train"}, "must be an ARN"),
        ({"assign_public_ip": True}, "platform=fargate"),
        ({"ulimits": ["memlock:1"]}, "name:soft:hard"),
        ({"ulimits": ["memlock:a:1"]}, "name:soft:hard"),
        ({"secrets": ["TOKEN"]}, "NAME=ARN"),
        ({"on_failure": "nonsense"}, "`end` or `wait`"),
    ],
)
def test_wrong_options_are_one_line(opts, words):
    with pytest.raises(ValueError, match=words) as caught:
        build(role(), **opts)
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_shown():
    with pytest.raises(InvalidInput) as caught:
        build(role(), secrets=["=sesame"])
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (role(image=""), "no image"),
        (role(entrypoint=""), "no entrypoint"),
        (role(num_replicas=0), "0 replicas"),
        (role(mounts=[VolumeMount("disk", "/x")]), "fs-12ab"),
        (role(mounts=[DeviceMount("/dev/x", "/dev/x", "rx")]), "`x`"),
    ],
)
def test_roles_that_cannot_be_are_refused(broken, words):
    with pytest.raises(InvalidInput, match=words):
        build(broken)


def test_what_is_no_mount_is_a_type_error_as_well():
    with pytest.raises(MountNotSupported) as caught:
        build(role(mounts=["/tmp"]))
    assert isinstance(caught.value, TypeError)


def test_more_roles_than_the_service_takes_are_refused_as_in_0_7():
    with pytest.raises(AssertionError, match=r"5 roles at most.*has 6: r0, r1"):
        build(*(role(f"r{i}") for i in range(6)))
    with pytest.raises(InvalidInput, match="no roles"):
        build()


def test_memory_is_needed_as_in_0_7():
    with pytest.raises(AssertionError, match="memMB"):
        build(role(resource=Resource(1, 0, -1)))


# -- published names ---------------------------------------------------------------------------


def test_resources_there_and_back():
    resource = Resource(cpu=2, gpu=1, memMB=512)
    requirements = resource_requirements_from_resource(resource)
    assert resource_from_resource_requirements(requirements) == resource
    assert ResourceType.from_str("gPu") is ResourceType.GPU
    with pytest.raises(ValueError, match="TPU"):
        ResourceType.from_str("TPU")
    with pytest.raises(ValueError, match="MEMORY"):
        resource_from_resource_requirements(requirements[:1])


@pytest.mark.parametrize(
    ("text", "found"), [("1:3", (1, 3)), (":2", (0, 2)), ("1:", (1, 4)), ("2", (2, 2))]
)
def test_forms_of_target_nodes(text, found):
    assert _parse_start_and_end_idx(text, 5) == found
    assert _parse_num_replicas(text, 5) == found[1] - found[0] + 1


def test_the_node_group_of_a_role():
    group = _role_to_node_properties(
        role(num_replicas=2), 3, privileged=True, ulimits=["nofile:1:2"]
    )
    assert group["targetNodes"] == "3:4"
    assert group["container"]["privileged"] is True
    assert group["container"]["ulimits"] == [{"name": "nofile", "softLimit": 1, "hardLimit": 2}]


def test_options_of_both_generations():
    assert AWSBatchOpts is Opts
    scheduler = create_scheduler("s", unknown=1)
    app = AppDef("a", [role()])
    for cfg in ({"queue": "q", "privileged": True}, Opts(queue="q", privileged=True)):
        request = scheduler.submit_dryrun(app, cfg).request
        assert isinstance(request, BatchJob)
        assert container(checked(request))["privileged"] is True
    scheduler.close()


def test_the_share_is_in_the_name():
    scheduler = create_scheduler("s")
    cfg = {"queue": "q", "share_id": "team"}
    assert scheduler.submit_dryrun(AppDef("a", [role()]), cfg).request.name.startswith("a-team-")


def test_a_client_may_replace_what_makes_names_unique(monkeypatch):
    monkeypatch.setattr(
        "torchx.schedulers.aws_batch_scheduler.make_unique", lambda name: f"{name}-1"
    )
    info = create_scheduler("s").submit_dryrun(AppDef("a", [role()]), {"queue": "q"})
    assert info.request.name == "a-1"


def test_a_dry_run_imports_no_boto3_and_needs_no_settings():
    code = """
import sys
from torchx.schedulers.aws_batch_scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role
app = AppDef("a", [Role("w", "i", entrypoint="x", resource=Resource(1, 0, 64), num_replicas=10000)])
text = str(create_scheduler("s").submit_dryrun(app, {"queue": "q"}))
print("0:9999" in text, len(text) < 3000, "boto3" in sys.modules or "botocore" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True True False\n", done.stderr
