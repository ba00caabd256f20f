"""A small Slurm: its programs as one script, for machines without the real one.

Installed under the names of the programs; jobs are processes of this machine, and what is known
of them lies in the directory that ``FAKE_SLURM_DIR`` names.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CLIENT_PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "srun")
NODE_PROGRAMS = ("srun", "scontrol", "scancel")
"""What jobs call themselves."""
KILL_AFTER_S = 3


def home() -> Path:
    return Path(os.environ["FAKE_SLURM_DIR"])


def option(arguments: list[str], name: str, default: str = "") -> str:
    for argument in arguments:
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
    return default


def load(job_id: str) -> "dict[str, object] | None":
    try:
        return json.loads((home() / f"{job_id}.json").read_text())
    except FileNotFoundError:
        return None


def store(job: "dict[str, object]", **changes: object) -> None:
    job.update(changes)
    path = home() / f"{job['id']}.json"
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(job))
    os.replace(new, path)


@contextlib.contextmanager
def locked(job_id: str) -> Iterator[None]:
    """Keeps other programs from changing a job while this one does."""
    with open(home() / f"{job_id}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def jobs() -> "list[dict[str, object]]":
    found = [json.loads(path.read_text()) for path in home().glob("*.json")]
    return sorted(found, key=lambda job: int(job["id"]))


def components(text: str) -> "list[dict[str, object]]":
    found: list[dict[str, object]] = [{}]
    for line in text.split("\n"):
        if line == "#SBATCH hetjob":
            found.append({})
        elif line.startswith("#SBATCH "):
            for word in line.split()[1:]:
                name, _, value = word.removeprefix("--").partition("=")
                found[-1][name] = value
    return [
        {"name": c["job-name"], "nodes": int(str(c.get("nodes") or 1).rpartition("-")[2])}
        for c in found
    ]


def sbatch(arguments: list[str]) -> int:
    at = next(i for i, a in enumerate(arguments) if not a.startswith("--"))
    options, script, more = arguments[:at], arguments[at], arguments[at + 1 :]
    text = Path(script).read_bytes()
    while True:
        job_id = str(max([100, *(int(str(job["id"])) for job in jobs())]) + 10)
        try:
            (home() / f"{job_id}.lock").touch(exist_ok=False)
            break
        except FileExistsError:
            time.sleep(0.01)
    (home() / f"{job_id}.sh").write_bytes(text)
    job = {
        "id": job_id,
        "cwd": os.path.abspath(option(options, "chdir", os.getcwd())),
        "arguments": more,
        "command": " ".join([script, *more]),
        "components": components(text.decode(errors="replace")),
        "state": "PENDING",
        "restarts": 0,
        "pid": 0,
        "flag": "",
    }
    store(job)
    me = [sys.executable, "-I", "-S", os.path.abspath(__file__), "run", job_id]
    with open(os.devnull, "r+b") as null:
        subprocess.Popen(me, stdin=null, stdout=null, stderr=null, start_new_session=True)
    print(job_id)  # noqa: T201 - a program
    return 0


def run(job_id: str) -> None:
    """What the controller and slurmd do: runs the script until it is not requeued."""
    while True:
        with locked(job_id):
            process = begin(job_id)
        if process is None:
            return
        code = process.wait()
        with locked(job_id):
            job = load(job_id)
            assert job is not None
            if job["flag"] == "requeue":
                store(job, state="PENDING", restarts=int(str(job["restarts"])) + 1, flag="", pid=0)
                continue
            state = "CANCELLED" if job["flag"] else ("FAILED" if code else "COMPLETED")
            store(job, state=state, pid=0)
            return


def begin(job_id: str) -> "subprocess.Popen[bytes] | None":
    """Starts the script; not that of a job that was cancelled before."""
    job = load(job_id)
    assert job is not None
    if job["flag"]:
        store(job, state="CANCELLED")
        return None
    env = {**os.environ, "SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": "localhost"}
    if job["restarts"]:
        env["SLURM_RESTART_COUNT"] = str(job["restarts"])
    parts = job["components"]
    assert isinstance(parts, list)
    for i, part in enumerate(parts):
        names = ",".join(["localhost"] * part["nodes"])
        env[f"FAKE_NODES_{i}"] = str(part["nodes"])
        env[f"SLURM_JOB_NODELIST_HET_GROUP_{i}"] = names
    with open(Path(str(job["cwd"])) / f"slurm-{job_id}.out", "ab") as out:
        process = subprocess.Popen(
            ["bash", str(home() / f"{job_id}.sh"), *job["arguments"]],  # type: ignore[misc]
            cwd=str(job["cwd"]),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    store(job, state="RUNNING", pid=process.pid)
    return process


def srun(arguments: list[str]) -> int:
    if option(arguments, "jobid"):  # a step beside those of a job, as a user starts it
        at = arguments.index("/bin/bash")
        env = {"PATH": os.defpath} if "--export=NONE" in arguments else None
        code = subprocess.run(arguments[at:], cwd=option(arguments, "chdir"), env=env).returncode
        return 128 - code if code < 0 else code
    at = arguments.index("sh")
    options, command = arguments[:at], arguments[at:]
    group = option(options, "het-group", "0")
    count = int(option(options, "ntasks") or os.environ[f"FAKE_NODES_{group}"])
    text = sys.stdin.buffer.read()
    tasks: list[subprocess.Popen[bytes]] = []
    ended: list[float] = []

    def end(*_: object) -> None:
        ended.append(time.monotonic())
        for task in tasks:
            if task.poll() is None:
                kill_tree(task.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    for rank in range(count):
        if ended:
            break
        env = {**os.environ, "SLURM_PROCID": str(rank), "SLURMD_NODENAME": "localhost"}
        env["SLURM_STEP_NUM_TASKS"] = env["SLURM_STEP_NUM_NODES"] = str(count)
        task = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        tasks.append(task)
        assert task.stdin is not None
        task.stdin.write(text)
        task.stdin.close()
    code = 0
    while any([task.poll() is None for task in tasks]):  # noqa: C419 - all are looked at
        bad = [t.returncode for t in tasks if t.returncode]
        if bad and not ended and option(options, "kill-on-bad-exit") != "0":
            end()
        if ended and time.monotonic() - ended[0] > KILL_AFTER_S:
            for task in tasks:
                if task.poll() is None:
                    kill_tree(task.pid, signal.SIGKILL)
        time.sleep(0.02)
        code = code or (bad[0] if bad else 0)
    return code or next((t.returncode for t in tasks if t.returncode), 0) % 256


def kill_tree(pid: int, number: int) -> None:
    """Signals a process and all below it."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        below.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for each in found:
        found += below.get(each, [])
    for each in reversed(found):
        kill(each, number)


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def scancel(arguments: list[str]) -> int:
    if option(arguments, "signal"):
        return 1
    return max(cancel(word) for word in arguments if not word.startswith("-"))


def cancel(job_id: str) -> int:
    with locked(job_id):
        job = load(job_id)
        if job is None or job["state"] not in ("PENDING", "RUNNING"):
            return 0
        store(job, flag="cancel")
    if not job["pid"]:
        return 0
    pid = int(str(job["pid"]))
    kill_tree(pid, signal.SIGTERM)
    if os.fork() == 0:  # the controller kills what does not end
        os.setsid()
        for fd in range(3):
            os.close(fd)
        deadline = time.monotonic() + KILL_AFTER_S
        while left := in_session(pid):
            if time.monotonic() > deadline:
                for each in left:
                    kill(each, signal.SIGKILL)
            time.sleep(0.05)
        os._exit(0)
    return 0


def in_session(session: int) -> "list[int]":
    """The living processes of a job, each of which is a session of its own."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


def squeue(arguments: list[str]) -> int:
    found = []
    for job in jobs():
        parts = job["components"]
        assert isinstance(parts, list)
        for i, part in enumerate(parts):
            leader = int(str(job["id"])) if len(parts) > 1 else 0
            found.append(
                {
                    "job_id": int(str(job["id"])) + i,
                    "het_job_id": {"set": bool(leader), "number": leader},
                    "het_job_offset": {"set": bool(leader), "number": i},
                    "name": part["name"],
                    "job_state": [job["state"]],
                    "restart_cnt": job["restarts"],
                    "nodes": ",".join(["localhost"] * part["nodes"]),
                    "current_working_directory": job["cwd"],
                    "command": job["command"],
                    "job_resources": None,
                }
            )
    print(json.dumps({"jobs": found}))  # noqa: T201 - a program
    return 0


def sacct(arguments: list[str]) -> int:
    sys.stderr.write("Slurm accounting storage is disabled\n")
    return 1


def sinfo(arguments: list[str]) -> int:
    table = "slurm 24.11.0" if "--version" in arguments else "PARTITION,MEMORY\ndebug*,64000"
    print(table)  # noqa: T201 - a program
    return 0


def scontrol(arguments: list[str]) -> int:
    if arguments[0] == "requeue":
        with locked(arguments[1]):
            job = load(arguments[1])
            assert job is not None
            store(job, flag=job["flag"] or "requeue")
    elif arguments[:2] == ["show", "hostnames"]:
        print(re.sub(",", "\n", arguments[2]))  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2])
        sys.exit(0)
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
