"""A replica that has failed for good: what becomes of the others, and who is told when."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torchx.runner import Runner
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, AppState, RetryPolicy, Role

from .jobs import processes_with, sh, wait_for_end, wait_until

MARKER = f"986{os.getpid()}"
"""Seconds to sleep, by which the processes of this run are known."""
FIRST_FAILS = f'test "$0" = 1 && exit 7; sleep {MARKER}'
STAYS_UNTIL_GO = "trap 'while [ ! -e go ]; do sleep 0.02; done; exit 0' TERM; touch ready"
FAILS_WHEN_READY = 'test "$0" = 1 && { while [ ! -e ready ]; do sleep 0.02; done; exit 7; }'


def two(script: str, **role: object) -> AppDef:
    """Two replicas of a shell script, which get their number as ``$0``."""
    args = ["-c", script, "${replica_id}"]
    return AppDef("job", [Role("w", "", entrypoint="sh", args=args, num_replicas=2, **role)])  # type: ignore[arg-type]  # fields of a role


def states(found):
    return [replica.state for replica in found.roles_statuses[0].replicas]


def test_a_failure_ends_the_others(scheduler):
    app_id = scheduler.submit(two(FIRST_FAILS), {"grace_s": 5})
    found = wait_for_end(scheduler, app_id)
    assert found.state is AppState.FAILED
    assert states(found) == [AppState.CANCELLED, AppState.FAILED]
    assert "replica w/1 exited with code 7" in found.msg
    assert json.loads(found.structured_error_msg)["errorCode"] == 7
    assert [(f.replica, f.exit_code) for f in scheduler.failed_replicas(app_id)] == [(1, 7)]
    assert processes_with(MARKER) == []
    assert scheduler.list()[0].state is AppState.FAILED


def test_the_app_runs_with_the_failure_as_its_message_until_the_rest_is_down(scheduler):
    script = f"{FAILS_WHEN_READY}; {STAYS_UNTIL_GO}; while :; do sleep 0.02; done"
    app_id = scheduler.submit(two(script), {"grace_s": 60})
    found = wait_until(
        lambda: (d := scheduler.describe(app_id)) and d.msg.startswith("replica") and d
    )
    assert found.state is AppState.RUNNING
    assert found.msg == "replica w/1 exited with code 7, ending the other replicas"
    assert states(found) == [AppState.RUNNING, AppState.FAILED]
    Path("go").touch()
    found = wait_for_end(scheduler, app_id)
    assert states(found) == [AppState.CANCELLED, AppState.FAILED]
    assert found.msg == "replica w/1 exited with code 7"


def test_the_grace_period_bounds_how_long_the_others_stay(scheduler):
    script = f"test \"$0\" = 1 && exit 7; trap '' TERM; sleep {MARKER} & wait; sleep {MARKER}"
    app_id = scheduler.submit(two(script), {"grace_s": 1})
    assert wait_for_end(scheduler, app_id).state is AppState.FAILED
    assert processes_with(MARKER) == []


def test_the_others_go_on_if_the_option_says_so(scheduler):
    script = 'test "$0" = 1 && exit 7; while [ ! -e go ]; do sleep 0.02; done; echo done'
    app_id = scheduler.submit(two(script), {"on_failure": "wait"})
    found = wait_until(lambda: (d := scheduler.describe(app_id)) and "code 7" in d.msg and d)
    assert (found.state, found.msg) == (AppState.RUNNING, "replica w/1 exited with code 7")
    Path("go").touch()
    found = wait_for_end(scheduler, app_id)
    assert states(found) == [AppState.SUCCEEDED, AppState.FAILED]
    assert list(scheduler.log_iter(app_id, "w", 0)) == ["done\n"]


def test_retries_come_before_the_end(scheduler):
    app = two(FIRST_FAILS, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    app_id = scheduler.submit(app, {"grace_s": 5})
    found = wait_for_end(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 2)
    assert [(f.replica, f.attempt) for f in scheduler.failed_replicas(app_id)] == [(1, 2)]


def test_min_replicas_are_left_out_with_a_warning(scheduler, caplog):
    app_id = scheduler.submit(two(FIRST_FAILS, min_replicas=1), {"grace_s": 5})
    assert wait_for_end(scheduler, app_id).state is AppState.FAILED
    assert "`local_cwd` leaves out `min_replicas` of role `w`" in caplog.text


def test_what_waits_is_woken_by_the_failure(caplog):
    script = f"{FAILS_WHEN_READY}; {STAYS_UNTIL_GO}; while :; do sleep 0.02; done"
    with Runner("test", {"local_cwd": create_scheduler}) as runner:
        handle = runner.run(two(script), "local_cwd", {"grace_s": 60})
        ended = []
        thread = threading.Thread(
            target=lambda: ended.append(runner.wait(handle, wait_interval=3600))
        )
        thread.start()
        told = "replica w/1 exited with code 7; ending the other replicas"
        wait_until(lambda: told in [record.message for record in caplog.records])
        assert thread.is_alive()
        Path("go").touch()
        thread.join(30)
    (status,) = ended
    assert status.state is AppState.FAILED


def test_run_says_so_in_that_moment():
    script = f"{FAILS_WHEN_READY}; {STAYS_UNTIL_GO}; while :; do sleep 0.02; done"
    Path("job.py").write_text(
        "import torchx.specs as specs\n"
        "def two() -> specs.AppDef:\n"
        f"    args = ['-c', {script!r}, specs.macros.replica_id]\n"
        "    return specs.AppDef('job', [specs.Role('w', '', entrypoint='sh', args=args,\n"
        "        num_replicas=2)])\n"
    )
    argv = [sys.executable, "-m", "torchx.cli.main", "run", "-cfg", "grace_s=60", "job.py:two"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "replica w/1 exited with code 7; ending the other replicas" in line:
                break
        assert process.poll() is None
        Path("go").touch()
        rest = process.stderr.read()
    assert process.returncode == 1
    assert "FAILED" in rest


RENDEZVOUS = """
import os, socket, sys, time
rank, path = int(sys.argv[1]), sys.argv[2]
if rank == 1:
    while not os.path.exists(path):
        time.sleep(0.01)
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    time.sleep(1)
    os._exit(7)
server = socket.socket(socket.AF_UNIX)
server.bind(path + ".new")
server.listen()
os.rename(path + ".new", path)  # nobody is refused: who sees the path finds a listener
server.accept()[0]
time.sleep(3600)  # as a collective does whose peer has died without a word
"""


def test_a_group_whose_member_dies_without_a_word_is_over_in_seconds(scheduler):
    args = ["-c", RENDEZVOUS, "${replica_id}", "group.sock"]
    role = Role("w", "", entrypoint=sys.executable, args=args, num_replicas=2)
    app_id = scheduler.submit(AppDef("job", [role]), {})
    found = wait_for_end(scheduler, app_id)
    assert "replica w/1 exited with code 7" in found.msg


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: pip install torch",
)
def test_a_ddp_job_whose_node_dies_without_a_word_is_over_in_seconds():
    Path("dies.py").write_text(
        "import os, time\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if dist.get_rank() == 1:\n"
        "    time.sleep(1)\n"
        "    os._exit(7)\n"
        "dist.barrier()\n"
        "print('the barrier was passed')\n"
    )
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
    argv = ["run", "dist.ddp", "-j", "2x1", "--rdzv_port", port, "--script", "dies.py"]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *argv],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,  # a barrier gives up after more than five minutes
        check=False,
    )
    assert done.returncode == 1
    assert "ending the other replicas" in done.stderr


def test_a_job_that_fails_again_and_again_does_not_spin(scheduler):
    app_id = scheduler.submit(sh("exit 1", max_retries=10_000), {"grace_s": 1})
    found = wait_until(lambda: (d := scheduler.describe(app_id)) and "begins after" in d.msg and d)
    assert found.state is AppState.RUNNING
    assert found.num_restarts < 20
    scheduler.cancel(app_id)
    assert wait_for_end(scheduler, app_id).state is AppState.CANCELLED
