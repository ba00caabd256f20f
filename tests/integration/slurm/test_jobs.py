"""The life of jobs on a real cluster: how they end, restart and are found again."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.slurm_cluster import engine
from torchx.errors import BackendUnavailable, JobStartError, LogsNotFound
from torchx.runner import get_runner
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Resource, Role, macros

from .conftest import Cluster, sh

pytestmark = pytest.mark.slurm


def test_replicas_of_a_role_run_on_nodes_of_their_own(cluster: Cluster):
    app_id, found = cluster.run(sh("echo $SLURMD_NODENAME", num_replicas=3))
    assert found.state is AppState.SUCCEEDED
    hosts = [r.hostname for r in found.roles_statuses[0].replicas]
    assert len(set(hosts)) == 3
    assert [cluster.lines(app_id, k=k) for k in range(3)] == [[f"{host}\n"] for host in hosts]


def test_a_range_of_replicas_takes_the_nodes_there_are(cluster: Cluster):
    role = sh("echo $SLURM_NTASKS $SLURMD_NODENAME", num_replicas=4, min_replicas=1)
    app_id, found = cluster.run(role, partition="debug")
    assert found.state is AppState.SUCCEEDED
    assert [r.id for r in found.roles_statuses[0].replicas] == [0, 1]
    assert [*cluster.lines(app_id), *cluster.lines(app_id, k=1)] == ["2 node1\n", "2 node2\n"]


def test_a_range_of_replicas_leaves_nodes_for_other_roles(cluster: Cluster):
    rank0 = f"echo $$SLURMD_NODENAME; cat .torchx-slurm-*/{macros.app_id}-*/hosts-0-0"
    first = Role("first", "", entrypoint="sh", args=["-c", rank0], num_replicas=4, min_replicas=1)
    app_id, found = cluster.run(first, sh("sleep 2; echo $SLURMD_NODENAME; exit 3", name="other"))
    assert found.state is AppState.FAILED
    assert "replica other/0 exited with code 3" in found.msg
    assert [(role.name, role.num_replicas) for role in found.roles] == [("first", 3), ("other", 1)]
    hosts = {s.role: [r.hostname for r in s.replicas] for s in found.roles_statuses}
    assert len({*hosts["first"], *hosts["other"]}) == 4
    assert cluster.lines(app_id, "other") == [f"{hosts['other'][0]}\n"]
    lines = [line.strip() for line in cluster.lines(app_id, "first")]
    assert lines == [hosts["first"][0], *hosts["first"]]


def test_packed_replicas_tell_the_node_they_run_on(cluster: Cluster):
    role = sh("echo $SLURMD_NODENAME", num_replicas=4)
    packed = "--nodes=2 --ntasks-per-node=2"
    app_id, found = cluster.run(role, sbatch_args=packed, srun_args="--distribution=cyclic")
    assert found.state is AppState.SUCCEEDED
    hosts = [r.hostname for r in found.roles_statuses[0].replicas]
    assert len(set(hosts)) == 2
    assert [cluster.lines(app_id, k=k) for k in range(4)] == [[f"{host}\n"] for host in hosts]


def test_gpus_are_given_to_each_replica(cluster: Cluster):
    role = sh("echo $CUDA_VISIBLE_DEVICES", num_replicas=2, resource=Resource(1, 2, 64))
    app_id, found = cluster.run(role, partition="gpu")
    assert found.state is AppState.SUCCEEDED
    assert [cluster.lines(app_id, k=k) for k in range(2)] == [["0,1\n"], ["0,1\n"]]


def test_free_arguments_may_ask_for_the_same_in_another_way(cluster: Cluster):
    role = sh("echo $CUDA_VISIBLE_DEVICES $SLURM_MEM_PER_CPU", resource=Resource(1, 1, 100))
    other = "--mem-per-cpu=50 --gres=gpu:2"
    app_id, found = cluster.run(role, partition="gpu", sbatch_args=other)
    assert found.state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["0,1 50\n"]
    steps = "--gres=gpu:1"
    app_id, found = cluster.run(role, partition="gpu", sbatch_args=other, srun_args=steps)
    assert found.state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["0 50\n"]


def test_a_role_that_needs_no_gpu_leaves_the_nodes_that_have_some(cluster: Cluster):
    cpus = sh("true", name="a", num_replicas=2, resource=Resource(2, 0, 64))
    gpus = sh("echo $SLURMD_NODENAME", name="b", resource=Resource(1, 1, 64))
    app_id, found = cluster.run(cpus, gpus)
    assert found.state is AppState.SUCCEEDED
    assert cluster.lines(app_id, "b")[0] in ("node3\n", "node4\n")


def test_nodes_are_chosen_for_a_single_role(cluster: Cluster):
    roles = [sh("echo $SLURMD_NODENAME", name=name) for name in ("a", "b")]
    app_id, found = cluster.run(*roles, role_args="a: --constraint=gpu; b: --nodelist=node2")
    assert found.state is AppState.SUCCEEDED
    assert cluster.lines(app_id, "a")[0] in ("node3\n", "node4\n")
    assert cluster.lines(app_id, "b") == ["node2\n"]


def test_line_breaks_of_dos_arrive(cluster: Cluster):
    value = "-----BEGIN-----\r\nMIIB\r\n"
    role = sh('printf %s "$CERT" >cert', env={"CERT": value})
    assert cluster.run(role)[1].state is AppState.SUCCEEDED
    assert Path("cert").read_bytes() == value.encode()


def test_a_job_that_cannot_start_its_replicas_says_what_slurm_says(cluster: Cluster):
    app_id, found = cluster.run(sh("true"), srun_args="--nosuch=1")
    assert found.state is AppState.FAILED
    assert "unrecognized option '--nosuch=1'" in found.msg
    assert "unrecognized option '--nosuch=1'" in found.structured_error_msg
    with pytest.raises(LogsNotFound, match="unrecognized option '--nosuch=1'"):
        cluster.lines(app_id)


@pytest.mark.parametrize(
    ("cfg", "replicas", "reason"),
    [({"partition": "debug"}, 3, "PartitionNodeLimit"), ({"sbatch_args": "--hold"}, 1, "JobHeld")],
)
def test_a_job_that_cannot_start_says_why(cluster: Cluster, cfg, replicas, reason):
    app_id = cluster.start(sh("true", num_replicas=replicas), **cfg)
    found = cluster.until(lambda: reason in cluster.describe(app_id).msg)
    assert found
    assert cluster.describe(app_id).state is AppState.PENDING


def test_a_range_of_replicas_bears_failures_down_to_its_least(cluster: Cluster):
    script = f"[ {macros.replica_id} = 0 ] || exit 3; sleep 2; echo done"
    role = Role("r", "", entrypoint="sh", args=["-c", script], num_replicas=2, min_replicas=1)
    app_id, found = cluster.run(role, partition="debug")
    assert found.state is AppState.SUCCEEDED
    states = [r.state for r in found.roles_statuses[0].replicas]
    assert states == [AppState.SUCCEEDED, AppState.FAILED]
    assert cluster.lines(app_id) == ["done\n"]
    assert [(f.replica, f.exit_code) for f in cluster.scheduler.failed_replicas(app_id)] == [(1, 3)]


def test_a_failed_role_fails_the_app_and_its_replica_is_named(cluster: Cluster):
    script = f"echo last words; sleep {macros.replica_id}; exit $$(( 5 * {macros.replica_id} ))"
    bad = Role("bad", "", entrypoint="sh", args=["-c", script], num_replicas=2)
    app_id, found = cluster.run(bad, sh("sleep 600", name="other"))
    assert found.state is AppState.FAILED
    assert "replica bad/1 exited with code 5" in found.msg
    (failed,) = cluster.scheduler.failed_replicas(app_id)
    assert (failed.role, failed.replica, failed.exit_code) == ("bad", 1, 5)
    assert failed.last_lines == ["last words"]
    states = {s.role: [r.state for r in s.replicas] for s in found.roles_statuses}
    assert states["bad"] == [AppState.SUCCEEDED, AppState.FAILED]
    assert states["other"] == [AppState.CANCELLED]
    assert json.loads(found.structured_error_msg)["errorCode"] == 5


def test_other_roles_are_asked_to_end_before_they_are_killed(cluster: Cluster):
    bad = sh("sleep 1; exit 5", name="bad")
    script = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    good = sh(f"{script} 2>/dev/null", name="good")
    stubborn = sh("trap '' TERM; echo ready; while :; do sleep 0.5; done", name="stubborn")
    app_id, found = cluster.run(bad, good, stubborn)
    assert found.state is AppState.FAILED
    assert cluster.lines(app_id, "good") == ["ready\n", "saved\n"]
    (failed,) = cluster.scheduler.failed_replicas(app_id)
    assert failed.role == "bad"
    states = {s.role: s.replicas[0].state for s in found.roles_statuses}
    assert states["stubborn"] is AppState.CANCELLED


def test_a_replica_that_is_killed_is_told_by_its_signal(cluster: Cluster):
    app_id, found = cluster.run(sh("kill -SEGV $$"))
    assert found.state is AppState.FAILED
    (failed,) = cluster.scheduler.failed_replicas(app_id)
    assert (failed.exit_code, failed.reason) == (-11, "killed by SIGSEGV")


def test_a_replica_that_is_killed_is_named_and_not_one_that_leaves_with_it(cluster: Cluster):
    script = (
        "trap 'exit 1' TERM; [ $SLURM_PROCID = 1 ] || { sleep 1; kill -KILL $$; }; "
        "while :; do sleep 0.1; done 2>/dev/null"
    )
    app_id, found = cluster.run(sh(script, num_replicas=2))
    assert "replica r/0 killed by SIGKILL" in found.msg
    first = cluster.scheduler.failed_replicas(app_id)[0]
    assert (first.replica, first.exit_code) == (0, -9)


def test_a_restarted_job_keeps_the_logs_of_all_attempts(cluster: Cluster):
    role = sh("echo attempt $TORCHX_ATTEMPT; [ $TORCHX_ATTEMPT = 1 ]", max_retries=2)
    app_id = cluster.start(role)
    assert cluster.lines(app_id, should_tail=True) == ["attempt 0\n", "attempt 1\n"]
    found = cluster.end(app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert cluster.lines(app_id) == ["attempt 0\n", "attempt 1\n"]
    assert Path(f"slurm-{app_id}-r-0.r1.out").read_text() == "attempt 1\n"
    batch = Path(f"slurm-{app_id}.out").read_text()
    assert "job exited with code 1" in batch
    assert "job exited with code 0" in batch


def test_a_requeue_from_outside_is_an_attempt_too(cluster: Cluster):
    app_id = cluster.start(
        sh("echo attempt $TORCHX_ATTEMPT; [ $TORCHX_ATTEMPT = 1 ] || exec sleep 600")
    )
    cluster.until(lambda: cluster.lines(app_id))
    subprocess.run(["scontrol", "requeue", app_id], check=True)
    assert cluster.lines(app_id, should_tail=True) == ["attempt 0\n", "attempt 1\n"]
    found = cluster.end(app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)


def test_a_job_that_waits_can_be_cancelled(cluster: Cluster):
    app_id = cluster.start(sh("true"), begin="now+1hour")
    found = cluster.until(lambda: "BeginTime" in cluster.describe(app_id).msg)
    assert found
    follower = iter(cluster.scheduler.log_iter(app_id, "r", should_tail=True))
    cluster.scheduler.cancel(app_id)
    assert cluster.end(app_id).state is AppState.CANCELLED
    assert cluster.lines(app_id) == []
    follower.close()


def test_a_running_job_with_two_roles_can_be_cancelled(cluster: Cluster):
    app_id = cluster.start(sh("echo a; sleep 600", name="a"), sh("echo b; sleep 600", name="b"))
    cluster.until(lambda: cluster.lines(app_id, "a") and cluster.lines(app_id, "b"))
    cluster.until(lambda: cluster.describe(app_id).state is AppState.RUNNING)
    cluster.scheduler.cancel(app_id)
    found = cluster.end(app_id)
    assert found.state is AppState.CANCELLED
    assert {r.state for s in found.roles_statuses for r in s.replicas} == {AppState.CANCELLED}
    assert cluster.scheduler.failed_replicas(app_id) == []


def test_a_signal_reaches_the_replicas_which_save_and_go_on_after_the_requeue(cluster: Cluster):
    script = (
        "trap 'echo saved at $step > saved; exit 75' USR1; step=7; "
        "[ ! -f saved ] || { cat saved; exit 0; }; echo ready; "
        "while :; do sleep 0.1; done 2>/dev/null"
    )
    app_id = cluster.start(sh(script, max_retries=1))
    cluster.until(lambda: cluster.lines(app_id))
    subprocess.run(["scancel", "--signal=USR1", app_id], check=True)
    found = cluster.end(app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert cluster.lines(app_id) == ["ready\n", "saved at 7\n"]


@pytest.mark.timeout(200)
def test_a_signal_that_plain_scripts_ask_for_reaches_the_replicas_of_all_roles(cluster: Cluster):
    script = (  # whoever ends first ends the other, which needs some time to save
        "trap 'echo saved; sleep 4; exit 75' USR1; [ $TORCHX_ATTEMPT = 0 ] || exit 0; "
        "while :; do sleep 0.2; done 2>/dev/null"
    )
    roles = [sh(script, name=name, max_retries=1) for name in ("a", "b")]
    app_id = cluster.start(*roles, time="0:01", signal="B:USR1@50")
    found = cluster.end(app_id, 150)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert [cluster.lines(app_id, name) for name in ("a", "b")] == [["saved\n"], ["saved\n"]]


@pytest.mark.timeout(200)
def test_a_time_limit_ends_the_job_as_failed_after_the_signal(cluster: Cluster):
    script = "trap 'echo signal' USR1; echo ready; while :; do sleep 0.2; done 2>/dev/null"
    app_id = cluster.start(sh(script), time="0:01", signal="USR1@50")
    lines = cluster.lines(app_id, should_tail=True)
    assert lines[0] == "ready\n"
    assert "signal\n" in lines
    found = cluster.end(app_id, 150)
    assert found.state is AppState.FAILED
    assert "TIMEOUT" in found.msg


def test_a_finished_job_is_found_from_another_directory_and_home(
    cluster: Cluster, tmp_path, monkeypatch
):
    app_id, _ = cluster.run(sh("echo here", num_replicas=2, name="a b"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "other home"))
    other = create_scheduler("other")
    assert [*other.log_iter(app_id, "a b", 1)] == ["here\n"]
    found = other.describe(app_id)
    assert found is not None
    assert [(r.name, r.num_replicas) for r in found.roles] == [("a b", 2)]
    assert found.state is AppState.SUCCEEDED


def test_a_job_that_runs_is_followed_and_cancelled_from_elsewhere(
    cluster: Cluster, tmp_path, monkeypatch
):
    job_dir = tmp_path / "job dir"
    app_id = cluster.start(sh("pwd; exec sleep 600"), job_dir=str(job_dir))
    assert (job_dir / "torchx-sbatch.sh").stat().st_mode & 0o77 == 0
    assert Path(".torchxslurmjobdirs").read_text() == f"{app_id} = {job_dir}\n"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "other home"))
    other = create_scheduler("other")
    lines = iter(other.log_iter(app_id, "r", should_tail=True))
    assert next(lines) == f"{job_dir}\n"
    assert app_id in [row.app_id for row in other.list()]
    other.cancel(app_id)
    assert [*lines] == []
    assert cluster.end(app_id).state is AppState.CANCELLED


def test_the_list_has_our_jobs_with_their_names_and_no_others(cluster: Cluster):
    other = subprocess.run(
        ["sbatch", "--parsable", "--wrap=true", "--job-name=theirs-0"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    app_id, _ = cluster.run(sh("true", name="a"), sh("true", name="b"), comment="my own")
    rows = cluster.until(
        lambda: [r for r in cluster.scheduler.list() if r.app_id in (app_id, other)]
    )
    assert [(r.app_id, r.name, r.state) for r in rows] == [(app_id, "itest", AppState.SUCCEEDED)]


def test_a_job_without_a_record_is_still_described(cluster: Cluster, tmp_path, monkeypatch):
    """As one of another version of TorchX, which left no notes."""
    script = tmp_path / "old.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --job-name=w-0\nsrun --output=slurm-$SLURM_JOB_ID-w-0.out "
        "--error=slurm-$SLURM_JOB_ID-w-0.err echo old\n"
    )
    done = subprocess.run(
        ["sbatch", "--parsable", str(script)], check=True, capture_output=True, text=True
    )
    app_id = done.stdout.strip()
    cluster.started.append(app_id)
    found = cluster.end(app_id)
    assert [(r.name, r.num_replicas) for r in found.roles] == [("w", 1)]
    monkeypatch.chdir(tmp_path)
    assert cluster.lines(app_id, "w") == ["old\n"]


# -- faults -------------------------------------------------------------------------------------


def test_a_refused_partition_is_told_in_the_words_of_slurm(cluster: Cluster):
    with pytest.raises(JobStartError, match="invalid partition") as caught:
        cluster.start(sh("true"), partition="no-such-partition")
    assert "\n" not in str(caught.value)


LOST = """\
#!/bin/sh
# Submits the job and loses the answer, the first time.
if [ -e {flag} ]; then exec {real} "$@"; fi
touch {flag}
{real} "$@" >/dev/null
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""


def test_a_lost_answer_of_sbatch_makes_no_second_job(cluster: Cluster, tmp_path, monkeypatch):
    real = subprocess.check_output(["which", "sbatch"], text=True).strip()
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "sbatch"
    fake.write_text(LOST.format(flag=tmp_path / "lost", real=real))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    app_id = cluster.start(sh("echo once >> count"))
    assert cluster.end(app_id).state is AppState.SUCCEEDED
    jobs = [row.app_id for row in cluster.scheduler.list() if int(row.app_id) >= int(app_id)]
    assert jobs == [app_id]
    assert Path("count").read_text() == "once\n"


@pytest.mark.timeout(180)
def test_waiting_survives_a_restart_of_the_controller(cluster: Cluster):
    with get_runner() as runner:
        role = sh("echo start; sleep 6; echo end")
        handle = runner.run(AppDef("itest", [role]), "slurm", {"partition": "all"})
        cluster.started.append(handle.rpartition("/")[2])
        runner.status(handle)
        engine("stop", "slurmctld")
        back = threading.Timer(4, engine, ["start", "slurmctld"])
        back.start()
        try:
            status = runner.wait(handle, wait_interval=0.5)
        finally:
            back.join()
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [*runner.log_lines(handle, "r")] == ["start\n", "end\n"]


def test_a_controller_that_is_away_is_told(cluster: Cluster):
    app_id = cluster.start(sh("sleep 600"))
    cluster.until(lambda: cluster.describe(app_id).state is AppState.RUNNING)

    def unreachable() -> str:
        try:
            cluster.scheduler.describe(app_id)  # by an earlier answer, until it is too old
        except BackendUnavailable as err:
            return str(err)
        return ""

    engine("stop", "slurmctld")
    try:
        assert "Slurm cannot be reached" in cluster.until(unreachable)
    finally:
        engine("start", "slurmctld")
    assert cluster.describe(app_id).state is AppState.RUNNING


def test_following_logs_asks_slurm_nothing(cluster: Cluster, tmp_path, monkeypatch):
    app_id = cluster.start(sh("for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sinfo"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/calls; exit 1\n")
        (programs / name).chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        lines = cluster.lines(app_id, should_tail=True)
    assert lines == [f"{i}\n" for i in range(1, 7)]
    assert not (tmp_path / "calls").exists()


def test_the_command_line_runs_follows_and_reports(slurm_cluster):
    command = [sys.executable, "-m", "torchx.cli.main", "run", "--wait", "--log", "-s", "slurm"]
    done = subprocess.run(
        [*command, "-c", "partition=all", "utils.sh", "--num_replicas", "2", "echo", "hi"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("slurm://torchx/")
    assert "hi" in done.stdout + done.stderr
