"""What replicas get and find in their containers: network, mounts, limits, environment; PyTorch."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.docker_engine import image_id, needs_docker
from torchx.specs import AppState, BindMount, DeviceMount, Resource, VolumeMount, macros

pytestmark = needs_docker

EXAMPLES = Path(__file__).parents[3] / "examples"

SERVE = """
import os, socket
with socket.create_server(("", 7000)) as server:
    for _ in range(3):
        client, _ = server.accept()
        with client:
            name = client.recv(100).decode()
            client.sendall(f"hello {name} from {socket.gethostname()}".encode())
            print("served", name)
"""
CALL = """
import os, socket, sys, time
host = os.environ[sys.argv[1]]
for _ in range(300):
    try:
        peer = socket.create_connection((host, 7000), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
with peer:
    peer.sendall(sys.argv[2].encode())
    answer = peer.recv(100).decode()
assert answer == f"hello {sys.argv[2]} from {host}", answer
print(answer)
"""

REGISTRY = f"localhost:{os.environ.get('TORCHX_TEST_REGISTRY_PORT', '5000')}"
"""Read here: tests run without the variables of TorchX."""


RUN = ("run", "-s", "local_docker", "--workspace=", "--wait")


def torchx(*args: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "torchx.cli.main"]
    return subprocess.run([*program, *args], capture_output=True, text=True, check=False)


def test_two_roles_find_each_other_by_the_name_of_the_first_replica(apps):
    serve = apps.python(SERVE, name="server", port_map={"greet": 7000})
    call = apps.python(
        CALL, macros.rank0_env, f"caller-{macros.replica_id}", name="caller", num_replicas=3
    )
    app_id, found = apps.run(serve, call, name="-odd_name-with-a-tail-that-is-cut-off-")
    assert found.state is AppState.SUCCEEDED, apps.lines(app_id, "caller")
    host = found.roles_statuses[0].replicas[0].hostname
    for k in range(3):
        assert apps.lines(app_id, "caller", k) == [f"hello caller-{k} from {host}\n"]
    assert sorted(apps.lines(app_id, "server")) == [f"served caller-{k}\n" for k in range(3)]


def test_host_name_and_container_name_are_the_first_host(apps):
    app_id, found = apps.run(apps.role(f"hostname; printenv {macros.rank0_env}", num_replicas=2))
    names = [replica.hostname for replica in found.roles_statuses[0].replicas]
    for k, name in enumerate(names):
        assert apps.lines(app_id, k=k) == [f"{name}\n", f"{names[0]}\n"]
    assert sorted(c.name for c in apps.containers(app_id)) == sorted(names)


def test_mounts_of_every_kind(apps, tmp_path, docker_client):
    (tmp_path / "note").write_text("from the host\n")
    volume = docker_client.volumes.create()
    try:
        mounts = [
            BindMount(str(tmp_path), "/host"),
            VolumeMount(volume.name, "/shared"),
            DeviceMount("/dev/null", "/dev/nothing", "rw"),
        ]
        script = (
            "cat /host/note; echo back > /host/answer; echo kept > /shared/file;"
            "echo gone > /dev/nothing && test -c /dev/nothing && echo device"
        )
        app_id, found = apps.run(apps.role(script, mounts=mounts))
        assert found.state is AppState.SUCCEEDED
        assert apps.lines(app_id) == ["from the host\n", "device\n"]
        assert (tmp_path / "answer").read_text() == "back\n"
        second = apps.role(
            "cat /shared/file; touch /shared/x 2>/dev/null || echo read only",
            mounts=[VolumeMount(volume.name, "/shared", read_only=True)],
        )
        app_id, _ = apps.run(second)
        assert apps.lines(app_id) == ["kept\n", "read only\n"]
        apps.scheduler.delete(app_id)
        volume.reload()  # the user's volume outlives the app
    finally:
        for app_id in apps.started:
            apps.scheduler.delete(app_id)
        volume.remove()


def test_resources_are_limits(apps):
    app_id, _ = apps.run(
        apps.role("df -k /dev/shm | tail -n 1", resource=Resource(cpu=0.5, gpu=0, memMB=96))
    )
    assert apps.lines(app_id)[0].split()[1] == str(96 * 1024)
    (container,) = apps.containers(app_id)
    host = container.attrs["HostConfig"]
    assert (host["Memory"], host["NanoCpus"]) == (96 << 20, 500_000_000)


def test_variables_of_the_user_of_the_option_and_of_the_role(apps, monkeypatch):
    monkeypatch.setenv("IT_A", "user")
    monkeypatch.setenv("IT_B", "user")
    monkeypatch.setenv("IT_C", "user")
    app_id = apps.start(
        apps.role("echo $IT_A $IT_B $IT_C; printenv TORCHX_IMAGE", env={"IT_C": "role"}),
        copy_env=["IT_*"],
        env={"IT_B": "option", "IT_C": "option"},
    )
    apps.end(app_id)
    assert apps.lines(app_id) == ["user option role\n", f"{apps.image}\n"]


def test_the_command_line_runs_a_job_and_knows_it_afterwards(apps):
    echo = ["utils.echo", "--image", apps.image, "--msg", "from a container"]
    done = torchx(*RUN, *echo, "--num_replicas", "2")
    handle = done.stdout.strip()
    apps.started.append(handle.rpartition("/")[2])
    assert done.returncode == 0, done.stderr
    assert handle.startswith("local_docker://torchx/echo-")
    logs = torchx("log", handle)
    assert logs.stdout.count("from a container") == 2
    rows = json.loads(torchx("list", "-s", "local_docker", "--json").stdout)
    assert [row["state"] for row in rows if row["handle"] == handle] == ["SUCCEEDED"]
    assert torchx("delete", handle).returncode == 0
    assert torchx("status", handle).returncode != 0


def test_the_workspace_is_in_the_image_as_it_is_now(apps, tmp_path):
    (tmp_path / "note").write_text("first\n")
    run = ["run", "-s", "local_docker", f"--workspace={tmp_path}", "--wait", "-cfg"]
    # without `image_repo` needed, and with one all the same: nothing is pushed
    for text, cfg in (("first", "quiet=true"), ("second", "image_repo=localhost:1/never/pushed")):
        (tmp_path / "note").write_text(f"{text}\n")
        done = torchx(*run, cfg, "utils.sh", "--image", apps.image, "cat", "note")
        handle = done.stdout.strip()
        apps.started.append(handle.rpartition("/")[2])
        assert done.returncode == 0, done.stderr
        assert torchx("log", handle).stdout.split()[-1] == text


@pytest.mark.registry
def test_a_workspace_goes_through_the_registry_where_that_is_asked_for(apps, tmp_path):
    base = f"{REGISTRY}/{apps.image.partition(':')[0]}-{uuid.uuid4().hex[:8]}:1"
    if subprocess.run(["docker", "tag", apps.image, base], check=False).returncode:
        pytest.fail("the image of the tests cannot be tagged")
    pushed = subprocess.run(["docker", "push", "-q", base], capture_output=True, check=False)
    if pushed.returncode:
        pytest.skip(f"no registry on {REGISTRY}; start one: scripts/engines/docker registry")
    (tmp_path / "note").write_text("through the registry\n")
    cfg = f"image_repo={base.rpartition(':')[0]}/jobs,image_builder=registry"
    run = ["run", "-s", "local_docker", f"--workspace={tmp_path}", "--wait", "-cfg", cfg]
    done = torchx(*run, "utils.sh", "--image", base, "cat", "note")
    handle = done.stdout.strip()
    apps.started.append(handle.rpartition("/")[2])
    assert done.returncode == 0, done.stderr
    assert "through the registry" in torchx("log", handle).stdout
    assert f"pushed image `{base.rpartition(':')[0]}/jobs@sha256:" in done.stderr


@pytest.mark.parametrize("j", ["1x2", "2x2"])
def test_an_all_reduce_with_pytorch_over_the_network(apps, docker_client, j):
    image = image_id(docker_client, "torchx-test/torch")
    nodes, procs = map(int, j.split("x"))
    size = nodes * procs
    done = torchx(
        *RUN, "dist.ddp", "-j", j, "--image", image,
        "--script", "/examples/all_reduce.py", "--cpu", "1",
        "--mounts", f"type=bind,src={EXAMPLES},dst=/examples,readonly",
    )  # fmt: skip
    handle = done.stdout.strip()
    apps.started.append(handle.rpartition("/")[2])
    logs = torchx("log", handle).stdout
    assert done.returncode == 0, done.stderr + logs
    assert logs.count(f"sum is {size * (size - 1) // 2}") == size


def test_without_a_daemon_there_is_one_clear_line(tmp_path):
    env = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    program = [sys.executable, "-m", "torchx.cli.main"]
    for args in (
        [*RUN, "utils.echo"],
        ["list", "-s", "local_docker"],
        ["status", "local_docker://torchx/x-1"],
    ):
        done = subprocess.run(
            [*program, *args], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert f"{tmp_path}/none.sock cannot be reached: No such file" in done.stderr
        assert "start Docker" in done.stderr
        assert "Traceback" not in done.stderr
