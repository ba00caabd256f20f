"""The generated scripts, run for real, with stand-ins for docker and apptainer."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchx.schedulers.lsf_scheduler import Facts, LsfOpts
from torchx.schedulers.lsf_scheduler._notes import make_folder
from torchx.schedulers.lsf_scheduler._request import build_request
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role, macros

RUNTIMES = ("none", "docker", "apptainer")
DUMP = """
import json, os, sys
path, names, *args = [os.fsencode(a) for a in sys.argv[1:]]
wanted = json.loads(names)
env = [os.environb.get(name.encode()) for name in wanted]
with open(path, "w") as f:
    json.dump([[a.hex() for a in args], [None if v is None else v.hex() for v in env]], f)
"""


def run_role(
    role: Role, folder: Path, runtime: str, index: int = 1, **more: object
) -> "subprocess.CompletedProcess[bytes]":
    """Runs the script of one replica as LSF would; each time in a folder that is new."""
    app = folder / "jobs" / "app-x"
    shutil.rmtree(app, ignore_errors=True)
    opts = LsfOpts(jobdir=str(folder / "jobs"), runtime=runtime, **more)
    request = build_request(AppDef("app", [role]), "app-x", opts, Facts(str(folder)))
    make_folder(request.folder, request.record, request.jobs())
    return run_again(folder, index)


def run_again(folder: Path, index: int = 1) -> "subprocess.CompletedProcess[bytes]":
    """Runs the script once more, as LSF does with a job that is requeued."""
    return subprocess.run(
        ["sh", str(folder / "jobs/app-x/role-0.sh")],
        env={**os.environ, "LSB_JOBINDEX": str(index), "LSB_HOSTS": "node1 node1"},
        capture_output=True,
        check=False,
        timeout=60,
    )


def notes(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs/app-x/notes").iterdir())


def logged(folder: Path, k: int = 0, suffix: str = "out") -> str:
    return (folder / f"jobs/app-x/logs/r-{k}.{suffix}").read_text()


# -- what arrives -------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
nasty = st.sampled_from(
    ["", "'", '"', "`id`", "$(id)", "$HOME", "${HOME}", "a,b;c=d", "\n", "\r\n", "\\", "\\n", "!!",
     "EOF", "\nEND_OF_PROGRAM\n", "\nEND_OF_SCRIPT\n", "#BSUB -q x", "\n#BSUB -q x\n", "%J", "*",
     "~", "ü火\U0001f525", "-n", "torchx_k", '"$torchx_k"']
)  # fmt: skip
values = st.one_of(texts, nasty, st.builds("".join, st.lists(st.one_of(nasty, texts), max_size=4)))
names = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
        lambda n: not n.startswith(("LD_", "PYTHON", "LC_"))
        and n not in ("PATH", "_", "BASH_ENV", "ENV", "LANG", "LANGUAGE", "HOME", "RECORD")
    ),
    st.sampled_from(["IFS", "PS4", "UID", "RANDOM", "SECONDS", "PWD", "SHLVL", "A1", "HF_TOKEN"]),
    st.sampled_from(["a.b", "a-b", "PIPESTATUS", "DOCKER_HOST", "HTTP_PROXY", "http_proxy"]),
    st.sampled_from(["torchx_k", "torchx_code", "TORCHX_ATTEMPT", "LSB_JOBINDEX"]),
)


def escaped(text: str) -> str:
    """The text as a component writes it, so that no macro is meant."""
    return text.replace("$", "$$")


@pytest.fixture(params=["sh", "bash"])
def shell(request, containers):
    """Which shell is `sh` on the hosts: that of this machine, or bash as on most clusters."""
    path = shutil.which(request.param)
    assert path is not None
    (containers.parent / "bin" / "sh").symlink_to(path)
    return request.param


@pytest.mark.parametrize("runtime", RUNTIMES)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(values, max_size=6), env=st.dictionaries(names, values, max_size=6))
def test_every_value_arrives_byte_for_byte(tmp_path, shell, runtime, args, env):
    out = tmp_path / "out.json"
    out.unlink(missing_ok=True)
    role = Role(
        "r",
        "image:1",
        entrypoint=sys.executable,
        args=["-c", escaped(DUMP), str(out), json.dumps([*env]), *map(escaped, args)],
        env={name: escaped(value) for name, value in env.items()},
    )
    done = run_role(role, tmp_path, runtime)
    assert done.returncode == 0, (done, logged(tmp_path, 0, "err"))
    found_args, found_env = json.loads(out.read_text())
    assert [bytes.fromhex(a) for a in found_args] == [a.encode() for a in args]
    assert dict(zip(env, found_env, strict=True)) == {k: v.encode().hex() for k, v in env.items()}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_bytes_that_are_no_text_arrive_as_well(tmp_path, containers, runtime):
    out = tmp_path / "out.json"
    odd = os.fsdecode(b"\xff\xfe ok")
    role = Role("r", "i", entrypoint=sys.executable, args=["-c", DUMP, str(out), '["V"]', odd])
    role.env["V"] = odd
    assert run_role(role, tmp_path, runtime).returncode == 0
    args, env = json.loads(out.read_text())
    assert args == env == [b"\xff\xfe ok".hex()]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_replica_knows_itself_its_attempt_and_the_first_host(tmp_path, containers, runtime):
    role = Role("r", "i", entrypoint="sh", num_replicas=2)
    role.args = ["-c", "echo $$0 $$TORCHX_ATTEMPT $$" + macros.rank0_env, macros.replica_id]
    assert run_role(role, tmp_path, runtime).returncode == 0
    assert logged(tmp_path) == "0 0 node1\n"
    assert run_again(tmp_path, index=2).returncode == 0
    assert logged(tmp_path, 1) == "1 0 node1\n"


# -- how it ends --------------------------------------------------------------------------------


def test_exit_codes_and_attempts_are_noted(tmp_path):
    role = Role("r", "", entrypoint="sh", args=["-c", "echo $$TORCHX_ATTEMPT; exit 3"])
    role.max_retries, role.retry_policy = 1, RetryPolicy.REPLICA
    assert run_role(role, tmp_path, "none").returncode == 75  # LSF starts it again
    assert run_again(tmp_path).returncode == 3
    assert [n for n in notes(tmp_path) if n.startswith(("start", "exit"))] == [
        "exit-0-0-0-3",
        "exit-0-0-1-3",
        "start-0-0-0",
        "start-0-0-1",
    ]
    assert logged(tmp_path) == "0\n"
    assert (tmp_path / "jobs/app-x/logs/r-0.r1.out").read_text() == "1\n"


def test_the_code_that_is_requeued_is_not_taken_from_the_program(tmp_path):
    role = Role("r", "", entrypoint="sh", args=["-c", "exit 75"])
    assert run_role(role, tmp_path, "none").returncode == 1
    assert "exit-0-0-0-75" in notes(tmp_path)


def test_a_failure_that_cannot_end_the_others_is_noted(tmp_path):
    role = Role("r", "", entrypoint="false")
    run_role(role, tmp_path, "none")  # there is no bkill here
    assert {"ending", "unended"} <= {*notes(tmp_path)}


def test_as_many_may_fail_as_there_are_more_than_are_needed(tmp_path):
    role = Role("r", "", entrypoint="false", num_replicas=3, min_replicas=2)
    run_role(role, tmp_path, "none")
    assert "ending" not in notes(tmp_path)
    run_again(tmp_path, index=2)
    assert "ending" in notes(tmp_path)


def test_with_wait_nothing_is_ended(tmp_path):
    run_role(Role("r", "", entrypoint="false"), tmp_path, "none", on_failure="wait")
    assert "ending" not in notes(tmp_path)


def test_a_replica_that_comes_after_the_end_does_not_start(tmp_path):
    role = Role("r", "", entrypoint="false", num_replicas=2)
    run_role(role, tmp_path, "none")
    assert run_again(tmp_path, index=2).returncode == 143
    assert "start-0-1-0" not in notes(tmp_path)


# -- containers ---------------------------------------------------------------------------------


def recorded(record: Path) -> list[str]:
    argv: list[str] = json.loads(record.read_text())["argv"]
    return argv


def test_the_command_line_of_docker(tmp_path, containers):
    role = Role(
        "r",
        "image:1",
        entrypoint="echo",
        args=["hi", "$$H"],
        env={"A": "1", "HTTP_PROXY": "p"},
        port_map={"http": 8080},
        mounts=[BindMount("/src", "/dst", read_only=True)],
        resource=Resource(cpu=2, gpu=1, memMB=3),
    )
    assert run_role(role, tmp_path, "docker", container_workdir="/w").returncode == 0
    assert recorded(containers) == [
        *("run", "--name=app-x-r-0", "-v", "/src:/dst:ro", "-w", "/w", "-p", "8080"),
        *("--shm-size=64m", "-e", "TORCHX_RANK0_HOST=node1", "-e", "TORCHX_ATTEMPT=0"),
        *("-e", "A", "-e", "HTTP_PROXY=p", "--cpus=2", f"--memory={3 << 20}", "--gpus", "all"),
        *("-e", "CUDA_VISIBLE_DEVICES", "--entrypoint", "echo", "--rm", "image:1", "hi", "$H"),
    ]
    assert logged(tmp_path) == "hi $H\n"


def test_a_container_that_is_to_end_is_stopped_by_its_name(tmp_path, containers):
    program = containers.parent / "bin" / "docker"
    text = program.read_text().replace(
        'assert sys.argv[1] == "run", sys.argv',
        'if sys.argv[1] == "stop":\n    open(os.environ["RECORD"] + ".stop", "w").write('
        '" ".join(sys.argv[1:]))\n    sys.exit()',
    )
    program.write_text(text)
    role = Role("r", "i", entrypoint="sh", args=["-c", "kill -TERM $$PPID; sleep 0.5; exit 7"])
    done = run_role(role, tmp_path, "docker")
    assert done.returncode == 7
    assert {"killed-0-0-0", "exit-0-0-0-7"} <= {*notes(tmp_path)}
    stopped = containers.with_name("record.json.stop")
    assert stopped.read_text() == "stop --time 5 app-x-r-0"


def test_containers_of_later_attempts_have_names_of_their_own(tmp_path, containers):
    role = Role("r", "i", entrypoint="false", max_retries=1, retry_policy=RetryPolicy.REPLICA)
    run_role(role, tmp_path, "docker", host_network=True)
    assert recorded(containers)[1] == "--name=app-x-r-0"
    assert {"--net=host", "--ipc=host"} <= {*recorded(containers)}
    run_again(tmp_path)
    assert recorded(containers)[1] == "--name=app-x-r-0-r1"


def test_the_command_line_of_apptainer(tmp_path, containers):
    role = Role("r", "docker://image", entrypoint="echo", args=["hi"], env={"A": "secret"})
    role.mounts = [BindMount("/src", "/dst")]
    role.resource = Resource(cpu=1, gpu=1, memMB=1)
    assert run_role(role, tmp_path, "apptainer", container_workdir="/w").returncode == 0
    argv = recorded(containers)
    folder = str(tmp_path / "jobs/app-x")
    start = ["exec", "--bind", folder, "--bind", "/src:/dst", "--nv", "--pwd", "/w"]
    assert argv[:9] == [*start, "docker://image"]
    assert argv[9:12] == ["/bin/sh", "-s", "--"]
    assert "secret" not in " ".join(argv)
    assert logged(tmp_path) == "hi\n"
