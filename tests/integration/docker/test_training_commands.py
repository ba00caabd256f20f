"""Commands of training jobs in real containers, with the files that SageMaker puts there."""

import io
import json
import tarfile

import pytest

from tests.docker_engine import image_id, needs_docker
from torchx._docker import connect
from torchx.schedulers.aws_sagemaker_scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role, macros

pytestmark = needs_docker

PRINT = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ["ID"], os.environ[sys.argv[1]]]))
"""
ODD = ["", "it's", "two\nlines\r\u2028", "$HOME $(id) `id`", "x" * 3000, "火\U0001f525", "a\\nb"]


@pytest.fixture
def client():
    client = connect()
    yield client
    client.close()


def files(config):
    """An archive for `/` with the file that tells a container its number."""
    data = json.dumps(config, indent=2).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("opt/ml/input/config/resourceconfig.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def run(client, image, request, host):
    """What a container of one instance prints."""
    algorithm = request["AlgorithmSpecification"]
    container = client.containers.create(
        image,
        entrypoint=algorithm["ContainerEntrypoint"],
        command=algorithm["ContainerArguments"],
        environment=request["Environment"],
        network_mode="none",
    )
    try:
        hosts = ["algo-1", "algo-2", "algo-11"]
        container.put_archive("/", files({"hosts": hosts, "current_host": host}))
        container.start()
        code = container.wait(timeout=60)["StatusCode"]
        return code, container.logs().decode()
    finally:
        container.remove(force=True)


def test_replicas_get_their_number_their_first_host_and_every_value(client):
    role = Role(
        "w",
        "any",
        entrypoint="python3",
        args=["-c", PRINT, macros.rank0_env, macros.replica_id, macros.app_id, *ODD],
        env={"ID": f"<{macros.replica_id}>"},
        num_replicas=11,
        resource=Resource(1, 0, 64),
    )
    cfg = {"role": "Trainer", "launch": "container"}
    job = create_scheduler("t").submit_dryrun(AppDef("app", [role]), cfg).request
    image = image_id(client, "torchx-test/python")
    for host, k in (("algo-1", 0), ("algo-2", 1), ("algo-11", 10)):
        code, out = run(client, image, job.job_def, host)
        assert code == 0, out
        args, own_id, rank0 = json.loads(out)
        assert args[1:] == [str(k), job.job_name, *ODD]
        assert (own_id, rank0) == (f"<{k}>", "algo-1")


def test_the_program_gets_the_signals_and_its_code_is_that_of_the_container(client):
    role = Role(
        "w",
        "any",
        entrypoint="sh",
        args=["-c", f"[ $$$$ = 1 ] && exit 3 # {macros.replica_id}"],
        resource=Resource(1, 0, 64),
    )
    cfg = {"role": "Trainer", "launch": "container"}
    job = create_scheduler("t").submit_dryrun(AppDef("app", [role]), cfg).request
    image = image_id(client, "torchx-test/python")
    assert run(client, image, job.job_def, "algo-1") == (3, "")
