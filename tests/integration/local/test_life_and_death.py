"""Lines 7 to 10, 12 and 13 of what local jobs promise, each with real processes and signals."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchx.errors import InvalidInput, JobStartError, TorchXError
from torchx.schedulers.api import Stream
from torchx.schedulers.local_scheduler import LocalScheduler, create_scheduler
from torchx.schedulers.local_scheduler._states import parse_journal
from torchx.specs.api import AppDef, AppState, RetryPolicy, Role

from .jobs import alive, make_app, processes_with, sh, wait_for_end, wait_until

MARKER = f"987{os.getpid()}"
"""Seconds to sleep, by which the processes of this run are known, and of no other beside it."""
FOREVER = f"setsid sleep {MARKER} & sleep {MARKER}"
"""Two processes of a replica, one of them in a session of its own."""


@pytest.fixture(autouse=True)
def nothing_survives():
    yield
    wait_until(lambda: not processes_with(MARKER), 15)


def supervisors(scheduler: LocalScheduler, app_id: str) -> list[int]:
    journal = Path(os.environ["TORCHX_HOME"], "local/jobs", app_id, "journal").read_text()
    event = json.loads(journal.split("\n")[0])
    assert event[0] == "supervised"
    return [event[4], event[6]]


# -- 7: recorded, and visible from everywhere ---------------------------------------------------


def test_a_job_is_seen_from_another_process_while_it_runs_and_after(launch, scheduler):
    _, app_id = launch("echo hello; while [ ! -e go ]; do sleep 0.02; done")
    seen = scheduler.describe(app_id)
    assert seen is not None
    assert seen.state is AppState.RUNNING
    assert [r.app_id for r in scheduler.list()] == [app_id]
    Path("go").touch()
    assert wait_for_end(scheduler, app_id).state is AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "w", 1)) == ["hello\n"]
    assert [(r.app_id, r.state, r.name) for r in scheduler.list()] == [
        (app_id, AppState.SUCCEEDED, "job")
    ]
    scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None
    assert scheduler.list() == []


def test_a_record_cut_off_at_any_byte_can_be_read(scheduler):
    app_id = scheduler.submit(sh("exit 3", max_retries=1), {"grace_s": 1})
    wait_for_end(scheduler, app_id)
    journal = Path(os.environ["TORCHX_HOME"], "local/jobs", app_id, "journal")
    whole = journal.read_bytes()
    states = set()
    for size in range(len(whole) + 1):
        states.add(parse_journal(whole[:size]).state)
    assert states == {AppState.PENDING, AppState.RUNNING, AppState.FAILED}


def test_the_list_survives_the_loss_of_its_index(scheduler):
    ids = [scheduler.submit(sh("true"), {}) for _ in range(3)]
    for app_id in ids:
        wait_for_end(scheduler, app_id)
    Path(os.environ["TORCHX_HOME"], "local/index").unlink()
    assert {r.app_id for r in scheduler.list()} == set(ids)


# -- 8: attached and detached -------------------------------------------------------------------


def test_closing_the_scheduler_ends_an_attached_job():
    scheduler = create_scheduler("test")
    app_id = scheduler.submit(sh(FOREVER), {"grace_s": 1})
    assert wait_until(lambda: len(processes_with(MARKER)) == 2)
    scheduler.close()
    assert processes_with(MARKER) == []
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.CANCELLED


def test_closing_the_scheduler_leaves_a_detached_job_alone():
    scheduler = create_scheduler("test")
    app_id = scheduler.submit(sh(FOREVER), {"detach": True, "grace_s": 1})
    scheduler.close()
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.RUNNING
    scheduler.cancel(app_id)
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_an_attached_job(launch, scheduler, signum):
    process, app_id = launch(FOREVER)
    wait_until(lambda: len(processes_with(MARKER)) == 4)
    process.send_signal(signum)
    process.wait(20)
    assert processes_with(MARKER) == []
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED


def test_a_detached_job_goes_on_when_its_launcher_and_session_end(launch, scheduler):
    process, app_id = launch(FOREVER, detach=True)
    assert process.wait(20) == 0
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.RUNNING
    for pid in supervisors(scheduler, app_id):
        assert os.getsid(pid) not in (os.getsid(0), process.pid)
    scheduler.cancel(app_id)
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED


def test_a_forked_child_of_the_launcher_ends_nothing(scheduler):
    app_id = scheduler.submit(sh(FOREVER), {"grace_s": 1})
    pid = os.fork()
    if pid == 0:
        try:
            scheduler.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.RUNNING


# -- 9: no orphans ------------------------------------------------------------------------------


def test_killing_the_launcher_ends_an_attached_job(launch, scheduler):
    process, app_id = launch(FOREVER)
    wait_until(lambda: len(processes_with(MARKER)) == 4)
    process.kill()
    wait_until(lambda: not processes_with(MARKER))
    ended = wait_for_end(scheduler, app_id)
    assert ended.state is AppState.CANCELLED
    assert "launched" in ended.msg


@pytest.mark.parametrize("who", ["supervisor", "guard"])
def test_killing_what_supervises_a_detached_job_ends_it(launch, scheduler, who):
    _, app_id = launch(FOREVER, detach=True)
    wait_until(lambda: len(processes_with(MARKER)) == 4)
    supervisor, guard = supervisors(scheduler, app_id)
    os.kill(supervisor if who == "supervisor" else guard, signal.SIGKILL)
    wait_until(lambda: not processes_with(MARKER))
    ended = wait_for_end(scheduler, app_id)
    assert ended.state is AppState.FAILED
    assert "killed" in ended.msg


def test_killing_all_that_supervises_is_noticed_by_the_next_look(launch, scheduler):
    _, app_id = launch(FOREVER, detach=True)
    wait_until(lambda: len(processes_with(MARKER)) == 4)
    for pid in supervisors(scheduler, app_id):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in supervisors(scheduler, app_id)))
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.FAILED
    assert "killed" in found.msg
    assert processes_with(MARKER) == []
    assert scheduler.list()[0].state is AppState.FAILED


def test_what_cannot_be_found_without_its_supervisors_is_not_said_to_have_ended(launch, scheduler):
    hidden = f"1{MARKER}"
    _, app_id = launch(f"env -i setsid sleep {hidden} & sleep {MARKER}", detach=True)
    wait_until(lambda: len(processes_with(hidden)) == 2)
    try:
        both = supervisors(scheduler, app_id)
        for strike in (signal.SIGSTOP, signal.SIGKILL):  # none sees the other one die
            for pid in both:
                os.kill(pid, strike)
        wait_until(lambda: not any(alive(pid) for pid in supervisors(scheduler, app_id)))
        found = scheduler.describe(app_id)
        assert found is not None
        assert "what could be found of its replicas was ended" in found.msg
        assert processes_with(MARKER) == []
    finally:
        for pid in processes_with(hidden):
            os.kill(pid, signal.SIGKILL)


def test_cancel_reaches_what_ignores_the_first_signal(scheduler):
    app = sh(f"trap '' TERM; setsid sh -c \"trap '' TERM; sleep {MARKER}\" & sleep {MARKER}")
    app_id = scheduler.submit(app, {"grace_s": 3})
    wait_until(lambda: len(processes_with(MARKER)) == 2)
    scheduler.cancel(app_id)
    assert processes_with(MARKER) != [], "cancel does not wait for the end"
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED
    assert processes_with(MARKER) == []


def test_cancel_lets_a_replica_finish_within_the_grace_period(scheduler):
    app = sh("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    app_id = scheduler.submit(app, {"grace_s": 20})
    wait_until(lambda: list(scheduler.log_iter(app_id, "w")) == ["ready\n"])
    scheduler.cancel(app_id)
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED
    assert list(scheduler.log_iter(app_id, "w", streams=Stream.STDOUT)) == ["ready\n", "saved\n"]


def test_what_a_replica_leaves_in_the_background_ends_with_the_job(scheduler):
    app_id = scheduler.submit(sh(f"setsid sleep {MARKER} & echo done"), {"grace_s": 1})
    assert wait_for_end(scheduler, app_id).state is AppState.SUCCEEDED
    assert processes_with(MARKER) == []


def test_a_process_id_that_a_stranger_got_is_not_signalled(scheduler):
    app_id = scheduler.submit(sh(FOREVER), {"detach": True})
    for pid in supervisors(scheduler, app_id):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in supervisors(scheduler, app_id)))
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        journal = Path(os.environ["TORCHX_HOME"], "local/jobs", app_id, "journal")
        event = json.loads(journal.read_text().split("\n")[0])
        event[4] = event[6] = stranger.pid
        with journal.open("a") as f:
            f.write(json.dumps(["start", 1, 0, 0, 0, stranger.pid, 1]) + "\n")
            f.write(json.dumps(event) + "\n")
        found = scheduler.describe(app_id)
        assert found is not None
        assert found.state is AppState.FAILED
        scheduler.cancel(app_id)
        scheduler.delete(app_id)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# -- 10: retries --------------------------------------------------------------------------------


def two_roles(policy: RetryPolicy) -> AppDef:
    """Role ``a`` fails once in replica 1, everybody notes its start."""
    start = 'echo "$0 $TORCHX_ATTEMPT" >> starts; '
    fail = 'test "$0 $TORCHX_ATTEMPT" != "a1 0" || { sleep 0.2; exit 7; }; '
    stay = "while [ $(grep -c a1 starts) -lt 2 ]; do sleep 0.02; done"
    roles = [
        Role(
            name,
            "",
            entrypoint="sh",
            args=["-c", start + fail + stay, name + "${replica_id}"],
            num_replicas=2,
            max_retries=2,
            retry_policy=policy,
        )
        for name in ("a", "b")
    ]
    return AppDef("job", roles)


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (RetryPolicy.REPLICA, {"a0": 0, "a1": 1, "b0": 0, "b1": 0}),
        (RetryPolicy.ROLE, {"a0": 1, "a1": 1, "b0": 0, "b1": 0}),
        (RetryPolicy.APPLICATION, {"a0": 1, "a1": 1, "b0": 1, "b1": 1}),
    ],
)
def test_each_retry_policy_restarts_its_scope(scheduler, tmp_path, monkeypatch, policy, attempts):
    monkeypatch.chdir(tmp_path)
    app_id = scheduler.submit(two_roles(policy), {"grace_s": 1})
    ended = wait_for_end(scheduler, app_id)
    assert ended.state is AppState.SUCCEEDED
    assert ended.num_restarts == 1
    started = [line.split() for line in Path("starts").read_text().splitlines()]
    assert {who: max(int(n) for w, n in started if w == who) for who, _ in started} == attempts


def test_retries_are_bounded_and_the_first_failure_of_the_last_attempt_is_told(scheduler):
    app_id = scheduler.submit(
        sh('echo "try $TORCHX_ATTEMPT"; exit $((3 + TORCHX_ATTEMPT))', max_retries=2),
        {"grace_s": 1},
    )
    ended = wait_for_end(scheduler, app_id)
    assert (ended.state, ended.num_restarts) == (AppState.FAILED, 2)
    assert json.loads(ended.structured_error_msg)["errorCode"] == 5
    assert list(scheduler.log_iter(app_id, "w")) == ["try 0\n", "try 1\n", "try 2\n"]
    blocks = list(scheduler.log_blocks(app_id, attempt=1))
    assert [(b.attempt, b.text) for b in blocks] == [(1, "try 1\n")]
    assert [r.exit_code for r in scheduler.failed_replicas(app_id)] == [5]


def test_describe_tells_state_exit_code_and_host_of_each_replica(scheduler):
    app_id = scheduler.submit(sh("exit $0", replicas=1), {})
    wait_for_end(scheduler, app_id)
    app = AppDef(
        "job",
        [Role("w", "", entrypoint="sh", args=["-c", "exit ${replica_id}"], num_replicas=2)],
    )
    app_id = scheduler.submit(app, {})
    ended = wait_for_end(scheduler, app_id)
    zero, one = ended.roles_statuses[0].replicas
    assert (zero.state, one.state) == (AppState.SUCCEEDED, AppState.FAILED)
    assert json.loads(one.structured_error_msg)["errorCode"] == 1
    assert zero.hostname == os.uname().nodename
    assert "w/1" in ended.msg


def test_the_oldest_error_file_is_the_error_of_the_app(scheduler):
    script = (
        # each one after the one before it, by more than the clock of the file system takes to tick
        "k=${replica_id}; [ $k = 0 ] || until [ -e wrote-$((k - 1)) ]; do sleep 0.05; done; "
        'echo "{\\"message\\": \\"from ${replica_id}\\"}" > $TORCHELASTIC_ERROR_FILE; '
        "touch wrote-$k; exit 1"
    )
    app_id = scheduler.submit(sh(script, replicas=3), {})
    ended = wait_for_end(scheduler, app_id)
    assert json.loads(ended.structured_error_msg) == {"message": "from 0"}


def test_a_traceback_in_the_output_is_the_error_where_there_is_no_error_file(scheduler):
    app_id = scheduler.submit(make_app(sys.executable, "-c", "raise ValueError('boom')"), {})
    ended = wait_for_end(scheduler, app_id)
    error = json.loads(ended.structured_error_msg)["message"]
    assert error["message"] == "ValueError: boom"
    assert error["extraInfo"]["py_callstack"].startswith("Traceback (most recent call last):")


def test_a_broken_error_file_is_shown_as_it_is(scheduler):
    app_id = scheduler.submit(sh("echo '{oops' > $TORCHELASTIC_ERROR_FILE; exit 1"), {})
    ended = wait_for_end(scheduler, app_id)
    assert "{oops" in (ended.roles_statuses[0].replicas[0].structured_error_msg)


# -- 12: waiting --------------------------------------------------------------------------------


def test_waiting_needs_no_polling(scheduler):
    app_id = scheduler.submit(sh("while [ ! -e go ]; do sleep 0.01; done"), {})
    looks = 0
    Path("go").unlink(missing_ok=True)
    while True:
        looks += 1
        if looks == 2:
            Path("go").touch()
        found = scheduler.describe(app_id)
        assert found is not None
        if found.state is AppState.SUCCEEDED:
            break
        if looks > 1:
            scheduler.wait_for_change(app_id, 60)
    assert looks <= 5


# -- 13: clean failures -------------------------------------------------------------------------


def leftovers() -> list[str]:
    home = Path(os.environ["TORCHX_HOME"], "local")
    return [str(p) for d in ("jobs", "active", "logs") for p in (home / d).glob("**/*")]


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (make_app("no-such-program"), "`no-such-program` is in none of the directories of PATH"),
        (make_app("/no/such/program"), "`/no/such/program` does not exist"),
        (make_app("/etc/passwd"), "is not executable"),
        (make_app("/etc"), "is a directory"),
    ],
)
def test_a_bad_program_starts_nothing(scheduler, app, text):
    with pytest.raises(JobStartError, match=text):
        scheduler.submit(app, {})
    assert leftovers() == []
    assert scheduler.list() == []


def test_a_program_that_the_kernel_refuses_starts_nothing(scheduler, tmp_path):
    script = tmp_path / "bad"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    app = AppDef(
        "job",
        [
            Role("good", "", entrypoint="sleep", args=[MARKER], num_replicas=3),
            Role("bad", "", entrypoint=str(script)),
        ],
    )
    with pytest.raises(JobStartError, match="bad/0 could not be started"):
        scheduler.submit(app, {})
    assert processes_with(MARKER) == []
    assert [p for p in leftovers() if not p.endswith(("/logs", "/test"))] == []


def test_a_missing_directory_starts_nothing(tmp_path):
    from torchx.schedulers.local_scheduler import LocalDirectoryImageProvider

    scheduler = create_scheduler("test", image_provider_class=LocalDirectoryImageProvider)
    app = AppDef("job", [Role("w", str(tmp_path / "gone"), entrypoint="true")])
    with pytest.raises(InvalidInput, match="is not a directory"):
        scheduler.submit(app, {})


def test_two_roles_of_one_name_are_refused(scheduler):
    app = AppDef("job", [Role("w", "", entrypoint="true"), Role("w", "", entrypoint="true")])
    with pytest.raises(InvalidInput, match="two roles are named `w`"):
        scheduler.submit_dryrun(app, {})


@pytest.mark.parametrize("name", ["a/b", "..", "", "a\nb", "x" * 300])
def test_a_name_that_cannot_be_a_file_name_is_refused(scheduler, name):
    with pytest.raises(InvalidInput, match="cannot be part of a file name"):
        scheduler.submit_dryrun(AppDef(name, [Role("w", "", entrypoint="true")]), {})


def test_a_thousand_replicas_with_1024_files_fail_with_a_way_out(scheduler):
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
        "from torchx.schedulers.local_scheduler import create_scheduler\n"
        "from torchx.specs.api import AppDef, Role\n"
        "app = AppDef('job', [Role('w', '', entrypoint='sleep', args=['"
        + MARKER
        + "'], num_replicas=1000)])\n"
        "create_scheduler('test').submit(app, {})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "JobStartError" in done.stderr
    assert "the limit is 1024; raise it (`ulimit -n 6064`)" in done.stderr
    assert scheduler.list() == []
    assert leftovers() == [] or processes_with(MARKER) == []


def test_a_thousand_replicas_run(scheduler):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 6064:
        pytest.skip(f"this machine allows {hard} open files, 1,000 replicas need 6,064")
    app_id = scheduler.submit(sh("echo $0 ${replica_id}", replicas=1000), {})
    ended = wait_for_end(scheduler, app_id, 60)
    assert ended.state is AppState.SUCCEEDED
    assert len(list(scheduler.log_iter(app_id, "w", 999))) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB; needs the right to mount."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_the_job(scheduler, small_disk, monkeypatch):
    monkeypatch.setenv("TORCHX_HOME", str(small_disk))
    (small_disk / "filler").write_bytes(b"\0" * (1 << 20))
    with pytest.raises(TorchXError, match="No space left on device"):
        scheduler.submit(sh("true"), {})


def test_a_disk_that_fills_up_fails_the_job_and_says_so(scheduler, small_disk, monkeypatch):
    monkeypatch.setenv("TORCHX_HOME", str(small_disk))
    app_id = scheduler.submit(sh(f"yes | head -c 3000000; sleep {MARKER}"), {"grace_s": 1})
    ended = wait_for_end(scheduler, app_id)
    assert ended.state is AppState.FAILED
    assert "No space left on device" in ended.msg
    assert processes_with(MARKER) == []


def test_jobs_on_a_full_disk_end_with_a_reason_of_their_own(scheduler, small_disk, monkeypatch):
    monkeypatch.setenv("TORCHX_HOME", str(small_disk))
    waits = "while [ ! -e full ]; do sleep 0.02; done"
    scripts = [f"{waits}; yes | head -c 100000", waits, f"{waits}; exit 3"]
    ids = [scheduler.submit(sh(script), {"grace_s": 1}) for script in scripts]
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"\0" * 4096)
        except OSError:
            Path("full").touch()
    ends = [wait_for_end(scheduler, app_id) for app_id in ids]
    assert ends[0].state is AppState.FAILED
    assert "No space left on device" in ends[0].msg
    # those that print nothing may find the room that the first has given back
    disk, code = "No space left on device", "exited with code 3"
    assert ends[1].state is AppState.SUCCEEDED or disk in ends[1].msg
    assert disk in ends[2].msg or code in ends[2].msg


def test_two_jobs_of_one_id_are_refused(scheduler):
    info = scheduler.submit_dryrun(sh("true"), {})
    scheduler.schedule(info)
    with pytest.raises(JobStartError, match="exists already"):
        scheduler.schedule(info)


def test_many_jobs_at_once_all_end(scheduler):
    ids = [scheduler.submit(sh("echo $0; exit 0"), {}) for _ in range(20)]
    assert {wait_for_end(scheduler, i).state for i in ids} == {AppState.SUCCEEDED}
    assert len(scheduler.list()) == 20


def test_the_loss_of_a_peer_is_not_taken_for_the_first_failure(scheduler):
    lost = "raise ConnectionError('Connection closed by peer')"
    cause = "import time; time.sleep(0.3); raise ValueError('the cause')"
    roles = [
        Role(name, "", entrypoint=sys.executable, args=["-c", code])
        for name, code in (("lost", lost), ("cause", cause))
    ]
    app_id = scheduler.submit(AppDef("job", roles), {"on_failure": "wait"})
    error = json.loads(wait_for_end(scheduler, app_id).structured_error_msg)
    assert error["message"]["message"] == "ValueError: the cause"


@pytest.mark.parametrize(("second", "index"), [("boom", 1), ("Broken pipe", 0)])
def test_error_files_that_tell_of_a_lost_peer_stand_back(scheduler, second, index):
    script = (
        'test "$0" = 0 || sleep 0.2; test "$0" = 0 && what="Broken pipe" || what="%s"; '
        'echo "{\\"message\\": \\"$0 $what\\", \\"callstack\\": \\"Traceback\\"}"'
        " > $TORCHELASTIC_ERROR_FILE; exit 1"
    )
    role = Role(
        "w", "", entrypoint="sh", args=["-c", script % second, "${replica_id}"], num_replicas=2
    )
    app_id = scheduler.submit(AppDef("job", [role]), {"on_failure": "wait"})
    error = json.loads(wait_for_end(scheduler, app_id).structured_error_msg)
    assert error["message"].startswith(f"{index} ")
