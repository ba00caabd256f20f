"""What ``aws_batch`` generates runs in containers: ids, rank 0, attempts, empty values."""

import json
import subprocess

import pytest

from tests.docker_engine import PYTHON_IMAGE, needs_docker
from torchx.schedulers.aws_batch_scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role, macros

pytestmark = needs_docker

PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
MAIN = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
IMAGE = f"{PYTHON_IMAGE}:3.11"


def role(name, replicas):
    args = ["-c", PRINT, f"id {macros.replica_id}'", macros.rank0_env, "$$HOME"]
    return Role(
        name,
        IMAGE,
        entrypoint="python3",
        args=args,
        env={"EMPTY": "", "ID": f"{macros.replica_id} of {name}"},
        num_replicas=replicas,
        max_retries=1,
        resource=Resource(1, 0, 64),
    )


@pytest.fixture
def containers():
    app = AppDef("app", [role("reader", 2), role("trainer", 2)])
    return create_scheduler("s").submit_dryrun(app, {"queue": "q"}).request.containers


def run(container, **variables):
    given = {v["name"]: v["value"] for v in container["environment"]} | variables
    flags = [word for name, value in given.items() for word in ("-e", f"{name}={value}")]
    images = subprocess.run(
        ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", PYTHON_IMAGE],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    command = ["docker", "run", "--rm", "--network", "none", *flags, images[0]]
    done = subprocess.run([*command, *container["command"]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("node", range(4))
def test_a_node(containers, node):
    index, k = divmod(node, 2)
    variables = {"AWS_BATCH_JOB_NODE_INDEX": str(node), "AWS_BATCH_JOB_ATTEMPT": "2"}
    if node:  # the service leaves it out on the main node
        variables[MAIN] = "10.0.0.9"
    args, env = run(containers[index], **variables)
    assert args == [f"id {k}'", MAIN, "$HOME"]
    assert env[MAIN] == ("10.0.0.9" if node else "localhost")
    assert (env["ID"], env["EMPTY"]) == (f"{k} of {('reader', 'trainer')[index]}", "")
    assert (env["TORCHX_ATTEMPT"], env["TORCHX_ROLE_IDX"]) == ("1", str(index))
