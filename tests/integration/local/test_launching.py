"""Launches under bad conditions: interrupted, with closed streams, with limits, on odd machines."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchx.errors import JobStartError
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, AppState, Role

from .jobs import processes_with, sh, wait_for_end, wait_until

MARKER = f"985{os.getpid()}"
"""Seconds to sleep, by which the processes of this run are known."""

INTERRUPTED = """
import os, signal, sys, threading, time
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, Role
scheduler = create_scheduler("test")
signum, detach = signal.Signals[sys.argv[1]], sys.argv[2] == "detach"
role = Role("w", "", entrypoint="sleep", args=[os.environ["MARKER"]], num_replicas=2)
app = AppDef("job", [role])
scheduler.submit(app, {"detach": detach, "grace_s": 1})
for i in range(40):
    armed = threading.Event()
    def strike():
        armed.wait()
        time.sleep(i * 0.001)
        os.kill(os.getpid(), signum)
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        armed.set()
        scheduler.submit(app, {"detach": detach, "grace_s": 1})
        thread.join()
        time.sleep(60)
    except BaseException as err:
        if getattr(err, "sigval", None) != signum:
            raise
    thread.join()
print("struck")
sys.stdout.flush()
if not detach:
    sys.stdin.read()
"""


@pytest.mark.parametrize("signum", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("kind", ["attach", "detach"])
def test_an_interrupted_launch_leaves_no_job_that_cannot_be_reached(scheduler, signum, kind):
    argv = [sys.executable, "-c", INTERRUPTED, signum, kind]
    env = {**os.environ, "MARKER": MARKER}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "struck\n"
        rows = scheduler.list()
        running = [row.app_id for row in rows if row.state is AppState.RUNNING]
        assert {row.state for row in rows} <= {AppState.RUNNING, AppState.CANCELLED}
        wait_until(lambda: len(processes_with(MARKER)) == 2 * len(running))
        for row in rows:
            assert scheduler.describe(row.app_id) is not None
            scheduler.delete(row.app_id)
        assert scheduler.list() == []
        process.communicate()
    assert processes_with(MARKER) == []
    logs = Path(os.environ["TORCHX_HOME"], "local/logs/test")
    assert not logs.exists() or [*logs.iterdir()] == []


@pytest.mark.parametrize("detach", [False, True])
def test_a_launcher_that_ignores_the_end_of_children_launches(detach):
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from torchx.runner import get_runner\n"
        "from torchx.components.utils import echo\n"
        "with get_runner() as runner:\n"
        f"    handle = runner.run(echo(), 'local_cwd', {{'detach': {detach}}})\n"
        "    print(runner.wait(handle).state)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("SUCCEEDED\n", 0), done.stderr


def torchx_in_shell(command: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command line in a shell, as ``torchx``."""
    script = f'torchx() {{ "{sys.executable}" -m torchx.cli.main "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_of_the_launcher_do_not_matter(scheduler, closed):
    done = torchx_in_shell(f"torchx run utils.sh --num_replicas 2 -- echo hi {closed}")
    assert "logs could not be followed" not in done.stderr
    rows = scheduler.list()
    journals = [path.read_text() for path in Path(os.environ["TORCHX_HOME"]).rglob("journal")]
    assert done.returncode == 0, (done.stderr, rows, journals)
    (row,) = rows
    assert row.state is AppState.SUCCEEDED
    assert list(scheduler.log_iter(row.app_id, "sh", 1)) == ["hi\n"]


@pytest.mark.parametrize("json_flag", ["", "--json"])
@pytest.mark.parametrize(("script", "code"), [("echo x", 0), ("exit 3", 1)])
def test_a_job_goes_on_when_nobody_reads_its_handle(scheduler, json_flag, script, code):
    run = f"torchx run {json_flag} utils.sh -- sh -c 'sleep 0.5; {script}'"
    done = torchx_in_shell(f"{run} | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == code, done.stderr
    (row,) = scheduler.list()
    assert row.state is (AppState.FAILED if code else AppState.SUCCEEDED)


def test_jobs_that_were_waited_for_leave_nothing_open_in_the_launcher(scheduler):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        wait_for_end(scheduler, scheduler.submit(sh("true"), {}))
    assert len(os.listdir("/proc/self/fd")) == before


def test_jobs_that_nobody_waited_for_are_let_go_of_later(scheduler):
    before = len(os.listdir("/proc/self/fd"))
    ids = [scheduler.submit(sh("true"), {}) for _ in range(3)]
    active = Path(os.environ["TORCHX_HOME"], "local/active")
    wait_until(lambda: not {*ids} & {*os.listdir(active)})
    locks = [Path(os.environ["TORCHX_HOME"], "local/jobs", i, "lock") for i in ids]
    wait_until(lambda: all(free(lock) for lock in locks))
    wait_for_end(scheduler, scheduler.submit(sh("true"), {}))
    assert len(os.listdir("/proc/self/fd")) == before


def free(lock: Path) -> bool:
    """Whether no process supervises the job."""
    import fcntl

    with lock.open() as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_too_many_open_files_are_an_error_of_ours():
    code = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from torchx.schedulers.local_scheduler import create_scheduler\n"
        "from torchx.errors import JobStartError\n"
        "from torchx.specs.api import AppDef, Role, is_terminal\n"
        "scheduler = create_scheduler('test')\n"
        "app = AppDef('job', [Role('w', '', entrypoint='true')])\n"
        "first, other = scheduler.submit(app, {}), create_scheduler('other')\n"
        "while not is_terminal(other.describe(first).state):\n"
        "    other.wait_for_change(first, 1)\n"
        "held = []\n"
        "try:\n"
        "    while True:\n"
        "        held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError:\n"
        "    pass\n"
        "for left in range(12):\n"
        "    try:\n"
        "        scheduler.submit(app, {})\n"
        "        break\n"
        "    except JobStartError as err:\n"
        "        assert 'Too many open files' in str(err), err\n"
        "    os.close(held.pop())\n"
        "else:\n"
        "    sys.exit('it did not work with 12 descriptors either')\n"
        "print(len(scheduler.list()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_more_replicas_than_files_are_refused_before_anything_is_made(scheduler):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard > 1_100_000:
        pytest.skip(f"this machine allows {hard} open files")
    app = sh("true", replicas=hard // 6 + 1)
    with pytest.raises(JobStartError, match=r"but the limit is \d+; raise it"):
        scheduler.submit(app, {})
    assert not Path(os.environ["TORCHX_HOME"], "local/jobs").exists()


def test_a_dry_run_plans_no_more_replicas_than_there_can_be(scheduler):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard > 5_999_999:
        pytest.skip(f"this machine allows {hard} open files")
    with pytest.raises(JobStartError, match="the job needs 6000064 open files"):
        scheduler.submit_dryrun(sh("true", replicas=1_000_000), {})


AS_ANYBODY = """
import os
if os.geteuid() == 0:  # whom the limit does not hold for
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
FEW_PROCESSES = """
import resource, sys
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, Role
mine = 0
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.stat(f"/proc/{name}").st_uid == os.getuid():
            mine += len(os.listdir(f"/proc/{name}/task"))
    except OSError:
        pass
resource.setrlimit(resource.RLIMIT_NPROC, (mine + 20, mine + 20))
role = Role("w", "", entrypoint="sleep", args=[sys.argv[1]], num_replicas=100)
create_scheduler("test").submit(AppDef("job", [role]), {})
"""


def as_anybody(code: str, home: Path, needs: str = "") -> "subprocess.CompletedProcess[str]":
    """Runs it as a user who is not root, if this Python can be run by one."""

    def run(code: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", AS_ANYBODY + code, MARKER],
            capture_output=True,
            text=True,
            env={**os.environ, "TORCHX_HOME": str(home), "HOME": str(home)},
        )

    probe = run(f"import collections, torchx{needs}")
    if probe.returncode:
        pytest.skip(f"only root can run this Python here: {probe.stderr.strip()[-200:]}")
    return run(code)


def test_the_limit_of_processes_is_told(tmp_path):
    home = tmp_path / "anybody"
    home.mkdir()
    home.chmod(0o777)
    done = as_anybody(FEW_PROCESSES, home, needs="; os.listdir(os.environ['HOME'])")
    last = done.stderr.strip().split("\n")[-1]
    assert "could not be started: the limit of " in last
    assert "(`ulimit -u`)" in last
    assert processes_with(MARKER) == []


NESTED = """
import os, sys, time
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, Role
app = AppDef("inner", [Role("w", "", entrypoint="sleep", args=[os.environ["MARKER"]])])
print(create_scheduler("test").submit(app, {"detach": True, "grace_s": 1}), flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["ends", "is cancelled"])
def test_a_job_that_a_job_detaches_outlives_it(scheduler, how):
    args = ["-c", NESTED, "0" if how == "ends" else "3600"]
    role = Role("w", "", entrypoint=sys.executable, args=args, env={"MARKER": MARKER})
    outer = scheduler.submit(AppDef("outer", [role]), {"grace_s": 1})
    lines = iter(scheduler.log_iter(outer, "w", should_tail=True))
    inner = next(lines).strip()
    if how == "is cancelled":
        scheduler.cancel(outer)
    expected = AppState.SUCCEEDED if how == "ends" else AppState.CANCELLED
    assert wait_for_end(scheduler, outer).state is expected
    assert scheduler.describe(inner).state is AppState.RUNNING
    assert len(processes_with(MARKER)) == 1
    scheduler.cancel(inner)
    assert wait_for_end(scheduler, inner).state is AppState.CANCELLED
    assert processes_with(MARKER) == []


def test_an_attached_job_that_a_job_launches_ends_with_it(scheduler):
    code = NESTED.replace('"detach": True', '"detach": False')
    role = Role("w", "", entrypoint=sys.executable, args=["-c", code, "0"], env={"MARKER": MARKER})
    outer = scheduler.submit(AppDef("outer", [role]), {"grace_s": 1})
    assert wait_for_end(scheduler, outer).state is AppState.SUCCEEDED
    wait_until(lambda: not processes_with(MARKER))


def test_a_folder_of_another_user_is_refused(scheduler):
    home = Path(os.environ["TORCHX_HOME"], "local")
    home.mkdir(parents=True)
    try:
        os.chown(home, 65534, 65534)
    except PermissionError:
        pytest.skip("only root can make a folder of another user")
    with pytest.raises(JobStartError, match=r"belongs to another user \(id 65534\)"):
        scheduler.submit(sh("true"), {})
    assert [*home.iterdir()] == []


def test_what_is_ours_is_closed_to_others(scheduler):
    home = Path(os.environ["TORCHX_HOME"], "local")
    home.mkdir(parents=True)
    home.chmod(0o777)
    wait_for_end(scheduler, scheduler.submit(sh("true"), {}))
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "logs").stat().st_mode & 0o777 == 0o700


def records() -> Path:
    return Path(os.environ["TORCHX_HOME"], "local/jobs")


def test_a_machine_that_got_another_name_still_knows_its_jobs(scheduler):
    app_id = scheduler.submit(sh(f"sleep {MARKER}"), {"detach": True})
    path = records() / app_id / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "before"}))
    assert scheduler.describe(app_id).state is AppState.RUNNING
    journal = (records() / app_id / "journal").read_text()
    for pid in (json.loads(journal.split("\n")[0])[i] for i in (4, 6)):
        os.kill(pid, 9)
    wait_until(lambda: scheduler.describe(app_id).state is AppState.FAILED)
    scheduler.delete(app_id)
    assert scheduler.list() == []


def test_a_job_of_another_machine_is_left_alone(scheduler):
    app_id = scheduler.submit(sh("true"), {})
    wait_for_end(scheduler, app_id)
    folder = records() / app_id
    data = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**data, "host": "far", "boot_id": "other"}))
    lines = (folder / "journal").read_text().split("\n")
    (folder / "journal").write_text("\n".join(lines[:3]) + "\n")
    assert scheduler.describe(app_id).state is AppState.RUNNING
    with pytest.raises(OSError, match="runs on `far`, cancel it there"):
        scheduler.cancel(app_id)


def test_a_damaged_line_of_the_index_hides_no_job(scheduler):
    ids = [scheduler.submit(sh("true"), {}) for _ in range(2)]
    for app_id in ids:
        wait_for_end(scheduler, app_id)
    index = records().parent / "index"
    bad = "x\ty\tFAILED\tnoon\t\tname\nnot a row\na\tb\tVANISHED\t1\t2\tname\n"
    wait_until(lambda: index.read_text().count("\n") == 2)
    index.write_text(bad + index.read_text())
    rows = {row.app_id: row.state for row in scheduler.list()}
    assert rows[ids[0]] is rows[ids[1]] is AppState.SUCCEEDED
    assert rows["a"] is AppState.UNKNOWN


@pytest.mark.parametrize("content", ["", "{}", "[1]", "{cut off", None])
def test_a_job_whose_record_is_damaged_can_be_removed(scheduler, content):
    app_id = scheduler.submit(sh(f"sleep {MARKER}"), {"detach": True, "grace_s": 1})
    path = records() / app_id / "job.json"
    if content is None:
        journal = (records() / app_id / "journal").read_text()
        pids = [json.loads(journal.split("\n")[0])[i] for i in (4, 6)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # neither sees the other one die
            for pid in pids:
                os.kill(pid, number)
        path.unlink()
        wait_until(lambda: scheduler.describe(app_id) is not None)
    else:
        path.write_text(content)
    found = scheduler.describe(app_id)
    assert found.state is AppState.UNKNOWN
    assert "damaged" in found.msg
    assert [row.state for row in scheduler.list()] == [AppState.UNKNOWN]
    assert create_scheduler("other").describe_native(app_id) is None
    scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None
    assert scheduler.list() == []
    wait_until(lambda: not processes_with(MARKER))


def test_negative_retries_are_refused(scheduler):
    with pytest.raises(ValueError, match="`max_retries` must not be negative, given: -1"):
        scheduler.submit_dryrun(sh("true", max_retries=-1), {})


def test_a_home_that_no_shell_expanded_is_that_of_the_user(scheduler, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("TORCHX_HOME", "~/torchx")
    wait_for_end(scheduler, scheduler.submit(sh("true"), {}))
    assert (tmp_path / "me/torchx/local/jobs").is_dir()


@pytest.mark.parametrize("verb", ["list", "submit"])
def test_a_home_that_is_a_file_is_told(scheduler, tmp_path, monkeypatch, verb):
    home = tmp_path / "file"
    home.touch()
    monkeypatch.setenv("TORCHX_HOME", str(home))
    with pytest.raises((ValueError, JobStartError), match=r"below `.*/file/local`.*TORCHX_HOME"):
        scheduler.list() if verb == "list" else scheduler.submit(sh("true"), {})


def test_a_home_of_another_user_is_told(tmp_path):
    home = tmp_path / "private"
    (home / "local/active").mkdir(parents=True)
    home.chmod(0o700)
    code = (
        "from torchx.schedulers.local_scheduler import create_scheduler\n"
        "try:\n"
        "    create_scheduler('test').list()\n"
        "except ValueError as err:\n"
        "    print(err)\n"
    )
    done = as_anybody(code, home)
    assert "Permission denied; set TORCHX_HOME to a folder of your own" in done.stdout
