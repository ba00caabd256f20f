"""Start, state, cancel and delete of apps on a real Docker daemon."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.docker_engine import needs_docker
from torchx.errors import JobStartError
from torchx.schedulers.docker_scheduler import (
    LABEL_APP_ID,
    LABEL_VERSION,
    NETWORK,
    _ending,
    ensure_network,
    has_docker,
)
from torchx.specs import AppDef, AppState, BindMount, Resource, RetryPolicy, Role, macros

pytestmark = needs_docker


def marks(client, app_id):
    label = f"{_ending.LABEL_ENDED}={app_id}"
    return client.volumes.list(filters={"label": label})


def states(found):
    return {f"{r.role}/{r.id}": r.state for status in found.roles_statuses for r in status.replicas}


def networks(client, **filters):
    """Ids of the networks of our name; there may be one that no scheduler made."""
    return [n.id for n in client.networks.list(names=[f"^{NETWORK}$"], filters=filters)]


def users_of_network(apps):
    """Containers on it, and those of all apps, which may use it, be they ours or not."""
    on_it = apps.client.containers.list(all=True, filters={"network": NETWORK}, ignore_removed=True)
    return [*on_it, *apps.containers()]


# -- cancel and delete ----------------------------------------------------------------------------


def test_a_cancelled_app_is_cancelled_in_every_process(apps, tmp_path):
    app_id = apps.start(apps.role("echo up; sleep 3600"))
    apps.scheduler.cancel(app_id)
    assert apps.end(app_id).state is AppState.CANCELLED
    code = (
        "import sys; from torchx.schedulers.docker_scheduler import create_scheduler as c;"
        "s = c('other'); print(s.describe(sys.argv[1]).state.name);"
        "print({r.app_id: r.state.name for r in s.list()}[sys.argv[1]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, app_id],
        env={**os.environ, "TORCHX_HOME": str(tmp_path / "elsewhere")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["CANCELLED", "CANCELLED"]


def test_what_ended_before_a_cancel_keeps_its_state(apps):
    app_id = apps.start(
        apps.role("true", "good"), apps.role("exit 4", "bad"), apps.role("sleep 3600", "live")
    )
    while sorted(s.name for s in states(apps.scheduler.describe(app_id)).values()) != [
        "FAILED",
        "RUNNING",
        "SUCCEEDED",
    ]:
        apps.scheduler.wait_for_change(app_id, 20)
    apps.scheduler.cancel(app_id)
    found = apps.end(app_id)
    assert found.state is AppState.CANCELLED
    assert states(found) == {
        "good/0": AppState.SUCCEEDED,
        "bad/0": AppState.FAILED,
        "live/0": AppState.CANCELLED,
    }
    assert apps.scheduler.failed_replicas(app_id) == []  # it is not why the app ended


def test_a_program_that_ends_well_when_told_to_end_is_cancelled(apps):
    app_id = apps.start(apps.role("trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"))
    assert next(iter(apps.scheduler.log_iter(app_id, "worker", should_tail=True))) == "up\n"
    apps.scheduler.cancel(app_id)
    assert apps.end(app_id).state is AppState.CANCELLED


def test_cancel_of_an_ended_app_changes_nothing(apps):
    app_id, found = apps.run(apps.role("true"))
    assert found.state is AppState.SUCCEEDED
    apps.scheduler.cancel(app_id)
    assert apps.scheduler.describe(app_id).state is AppState.SUCCEEDED
    assert marks(apps.client, app_id) == []


def test_an_app_that_was_created_and_never_started_can_be_cancelled(apps):
    info = apps.scheduler.submit_dryrun(AppDef("it", [apps.role("true")]), {})
    ensure_network()
    (request,) = info.request.containers
    apps.client.containers.create(request.image, request.command, **request.kwargs)
    app_id = info.request.app_id
    apps.started.append(app_id)
    assert apps.scheduler.describe(app_id).state is AppState.SUBMITTED
    apps.scheduler.cancel(app_id)
    assert apps.scheduler.describe(app_id).state is AppState.CANCELLED


def test_delete_leaves_nothing(apps):
    app_id = apps.start(apps.role("sleep 3600", num_replicas=2))
    apps.scheduler.cancel(app_id)
    assert len(marks(apps.client, app_id)) == 1
    apps.scheduler.delete(app_id)
    assert apps.containers(app_id) == []
    assert marks(apps.client, app_id) == []
    assert apps.scheduler.describe(app_id) is None
    deadline = time.monotonic() + 60
    while networks(apps.client, label=LABEL_VERSION) and not users_of_network(apps):
        assert time.monotonic() < deadline, "the network stays without anyone who uses it"
        time.sleep(0.1)


def test_the_network_stays_while_another_app_needs_it(apps):
    kept = apps.start(apps.role("sleep 3600"))
    gone = apps.start(apps.role("true"))
    apps.scheduler.delete(gone)
    assert networks(apps.client)
    assert apps.scheduler.describe(kept).state is AppState.RUNNING


def test_a_network_that_is_there_is_used(apps):
    apps.start(apps.role("sleep 3600"))  # while it is there nobody removes the network
    before = networks(apps.client)
    ensure_network(apps.client)
    ensure_network()
    assert networks(apps.client) == before
    assert has_docker()


def test_delete_lets_programs_end_and_then_ends_them(apps, tmp_path):
    polite = apps.role(
        "trap 'echo bye > /host/bye; exit' TERM; echo up; while :; do sleep 0.1; done",
        "polite",
        mounts=[BindMount(str(tmp_path), "/host")],
    )
    deaf = apps.role("trap '' TERM; echo up; while :; do sleep 0.1; done", "deaf", num_replicas=12)
    app_id = apps.start(polite, deaf)
    ready = apps.scheduler.log_blocks(app_id, should_tail=True)
    seen = set()
    while len(seen) < 13:
        block = next(ready)
        seen.add((block.role, block.replica))
    ready.close()
    apps.scheduler.delete(app_id)
    assert (tmp_path / "bye").read_text() == "bye\n"
    assert apps.containers(app_id) == []


# -- states and messages --------------------------------------------------------------------------


def test_an_app_with_replicas_in_many_states_is_one_row_of_the_list(apps):
    mixed = apps.start(
        apps.role("true", "good"), apps.role("exit 1", "bad"), apps.role("sleep 3600", "live")
    )
    failed, _ = apps.run(apps.role(f"exit {macros.replica_id}", num_replicas=2))
    rows = {}
    while states(apps.scheduler.describe(mixed)) != {
        "good/0": AppState.SUCCEEDED,
        "bad/0": AppState.FAILED,
        "live/0": AppState.RUNNING,
    }:
        apps.scheduler.wait_for_change(mixed, 20)
    for row in apps.scheduler.list():
        rows.setdefault(row.app_id, []).append((row.name, row.state))
    assert rows[mixed] == [("it", AppState.RUNNING)]
    assert rows[failed] == [("it", AppState.FAILED)]


def test_running_out_of_memory_is_explained(apps):
    app_id, found = apps.run(
        apps.python("x = bytearray(400_000_000)", resource=Resource(cpu=1, gpu=0, memMB=48))
    )
    assert found.state is AppState.FAILED
    how = "killed by SIGKILL (out of memory: its limit is 48 MB, raise the role's memMB)"
    assert found.msg == f"replica worker/0 {how}"
    assert json.loads(found.structured_error_msg)["message"] == how
    (failed,) = apps.scheduler.failed_replicas(app_id)
    assert (failed.exit_code, failed.attempt, failed.reason) == (-9, 0, how)


def test_a_signal_is_explained(apps):
    _, found = apps.run(apps.role("kill -SEGV $$$$"))
    assert found.state is AppState.FAILED
    assert found.msg == "replica worker/0 killed by SIGSEGV"
    (replica,) = found.roles_statuses[0].replicas
    assert json.loads(replica.structured_error_msg)["errorCode"] == -11


def test_the_traceback_of_the_cause_is_told(apps):
    victim = "import time; time.sleep(1); raise ConnectionError('Connection reset by peer')"
    cause = "import time; time.sleep(2); raise KeyError('the cause')"
    _, found = apps.run(apps.python(victim, name="victim"), apps.python(cause, name="cause"))
    error = json.loads(found.structured_error_msg)["message"]
    assert error["message"] == "KeyError: 'the cause'"
    assert error["extraInfo"]["py_callstack"].startswith("Traceback (most recent call last):")
    assert found.msg == "replica cause/0 exited with code 1: KeyError: 'the cause' (<string>:1)"


def test_the_first_failure_is_the_one_that_is_told(apps):
    _, found = apps.run(apps.role("sleep 2; exit 5", "late"), apps.role("exit 6", "early"))
    assert found.msg == "replica early/0 exited with code 6"
    assert json.loads(found.structured_error_msg)["errorCode"] == 6


def test_roles_and_replicas_keep_their_order(apps):
    names = ["z", "a", "m"]
    app_id = apps.start(*(apps.role("true", n, num_replicas=3) for n in names))
    found = apps.scheduler.describe(app_id)
    assert [role.name for role in found.roles] == names
    assert [role.num_replicas for role in found.roles] == [3, 3, 3]
    assert [*states(found)] == [f"{n}/{k}" for n in names for k in range(3)]


def test_the_image_is_named_by_its_tag(apps, docker_client):
    _, found = apps.run(apps.role("true"))
    tags = docker_client.images.get(apps.image).tags
    assert [role.image for role in found.roles] == tags[:1]


def test_what_clients_use_of_the_sdk_is_there(apps):
    app_id, _ = apps.run(apps.role(f"exit {macros.replica_id}", num_replicas=2))
    scheduler = apps.scheduler
    containers = {c.name: scheduler._get_app_state(c) for c in scheduler._get_containers(app_id)}
    assert containers == {
        f"{app_id}-worker-0": AppState.SUCCEEDED,
        f"{app_id}-worker-1": AppState.FAILED,
    }
    assert scheduler._get_container(app_id, "worker", 1).name == f"{app_id}-worker-1"
    assert scheduler._get_container(app_id, "worker", 2) is None


# -- together or not at all -----------------------------------------------------------------------


def left_of(apps, app_name):
    """Names of containers. One call: records of those that are being started have to wait."""
    rows = apps.client.api.containers(all=True, filters={"label": LABEL_APP_ID})
    prefix = f"{app_name}-"
    return [row["Names"][0] for row in rows if row["Labels"][LABEL_APP_ID].startswith(prefix)]


def test_a_role_that_cannot_start_takes_the_others_with_it(apps, plain_image):
    bad = Role("bad", plain_image, entrypoint="/no/such/program", resource=Resource(1, 0, 64))
    with pytest.raises(JobStartError, match="/no/such/program"):
        apps.start(apps.role("sleep 3600", num_replicas=3), bad, name="gang-a")
    assert left_of(apps, "gang-a") == []


def test_a_name_that_is_taken_takes_all_back_but_the_other_container(apps):
    info = apps.scheduler.submit_dryrun(
        AppDef("gang-b", [apps.role("sleep 3600", num_replicas=3)]), {}
    )
    taken = info.request.containers[1].kwargs["name"]
    other = apps.client.containers.create(apps.image, ["true"], name=taken)
    try:
        with pytest.raises(JobStartError, match=f"{taken}.*remove that container"):
            apps.scheduler.schedule(info)
        assert left_of(apps, "gang-b") == []
        other.reload()
    finally:
        other.remove()


def test_an_image_that_is_not_there_is_told_before_anything_starts(apps):
    missing = [
        ("sha256:" + "0" * 64, "there is no image `sha256:0"),
        ("torchx-test/no-such-image:1", "image `torchx-test/no-such-image:1` is not on this"),
        ("", "image is empty"),
        ("UPPER/case", "image `UPPER/case` is not on this machine"),
    ]
    for image, message in missing:
        with pytest.raises(JobStartError, match=message):
            apps.start(apps.role("true"), apps.role("true", "b", image=image), name="gang-c")
        assert left_of(apps, "gang-c") == []


def test_a_bind_mount_of_nothing_is_refused_with_nothing_left(apps):
    with pytest.raises(JobStartError, match="/no/such/dir"):
        apps.start(apps.role("true", mounts=[BindMount("/no/such/dir", "/x")]), name="gang-d")
    assert left_of(apps, "gang-d") == []


def test_a_gpu_that_is_not_there_is_refused_with_nothing_left(apps):
    if "nvidia" in apps.client.info().get("Runtimes", {}):
        pytest.skip("this machine has GPUs")
    with pytest.raises(JobStartError, match="NVIDIA Container Toolkit"):
        apps.start(apps.role("true", resource=Resource(1, 1, 64)), name="gang-e")
    assert left_of(apps, "gang-e") == []


def test_a_local_image_that_cannot_be_pulled_is_used(apps, caplog):
    tag = apps.client.images.get(apps.image).tags[0]
    _, found = apps.run(apps.role("true", image=tag))
    assert found.state is AppState.SUCCEEDED
    assert f"using the local image `{tag}`" in caplog.text


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
def test_a_signal_while_replicas_start_leaves_none(apps, number, code):
    program = (
        "import sys; from torchx.schedulers.docker_scheduler import create_scheduler as c;"
        "from torchx.specs import *;"
        "r = Role('w', sys.argv[1], entrypoint='sleep', args=['3600'], num_replicas=30,"
        " resource=Resource(1, 0, 32));"
        "c('x').submit(AppDef(sys.argv[2], [r]), {}); print('all started')"
    )
    name = f"gang-{signal.Signals(number).name.lower()}"
    launcher = subprocess.Popen(
        [sys.executable, "-c", program, apps.image, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        while len(left_of(apps, name)) < 5:
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(0.02)
        launcher.send_signal(number)
        launcher.send_signal(number)
        out, err = launcher.communicate(timeout=100)
    finally:
        launcher.kill()
    assert out == b"", "the signal came too late to tell anything"
    assert launcher.returncode == code
    assert left_of(apps, name) == [], err.decode()


# -- retries --------------------------------------------------------------------------------------


def test_only_the_replica_that_fails_is_restarted_and_followed_to_its_end(apps):
    script = f"echo start; [ {macros.replica_id} = 0 ] || exit 9; sleep 1"
    app_id = apps.start(
        apps.role(script, num_replicas=2, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    )
    assert apps.lines(app_id, k=1, should_tail=True) == ["start\n"] * 3
    found = apps.end(app_id)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 2)
    assert apps.lines(app_id, k=0) == ["start\n"]
    (failed,) = apps.scheduler.failed_replicas(app_id)
    assert (failed.replica, failed.attempt, failed.exit_code) == (1, 2, 9)


def test_a_replica_that_is_cancelled_between_attempts_is_cancelled(apps):
    app_id = apps.start(apps.role("exit 1", max_retries=100, retry_policy=RetryPolicy.REPLICA))
    while apps.scheduler.describe(app_id).num_restarts < 1:
        apps.scheduler.wait_for_change(app_id, 5)
    apps.scheduler.cancel(app_id)
    assert apps.end(app_id).state is AppState.CANCELLED


# -- many -----------------------------------------------------------------------------------------


def test_fifty_replicas_start_print_and_end_cleanly(apps):
    app_id = apps.start(
        apps.role(
            f"echo {macros.replica_id}; sleep 3600",
            num_replicas=50,
            resource=Resource(cpu=0.1, gpu=0, memMB=16),
        )
    )
    seen = set()
    for block in apps.scheduler.log_blocks(app_id, should_tail=True):
        seen.add(block.replica)
        if len(seen) == 50:
            break
    assert set(states(apps.scheduler.describe(app_id)).values()) == {AppState.RUNNING}
    apps.scheduler.cancel(app_id)
    found = apps.end(app_id)
    assert set(states(found).values()) == {AppState.CANCELLED}
    apps.scheduler.delete(app_id)
    assert apps.containers(app_id) == []
