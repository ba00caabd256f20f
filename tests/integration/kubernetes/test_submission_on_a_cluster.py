"""Launchers that are killed leave whole apps on a real cluster, or nothing that runs."""

import contextlib
import json
import subprocess
import sys

import pytest

from torchx.errors import TorchXError
from torchx.schedulers._kube.calls import CONFIG_MAPS, JOBS, PODS, SERVICES, Kind, Selection
from torchx.schedulers.kubernetes_scheduler import create_scheduler
from torchx.specs import AppState, is_terminal

from .conftest import OURS, until
from .real_cluster import IMAGE, an_app, kubeconfig_for, own_place, torchx

QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota")
LAUNCH = """
import json, sys
from torchx.schedulers.kubernetes_scheduler import create_scheduler
from torchx.specs import AppDef, Role
image = sys.argv[1]
roles = [Role(n, image, entrypoint="true", num_replicas=k) for n, k in (("a", 2), ("b", 1), ("c", 1))]
print("begun", flush=True)
create_scheduler("killed").submit(AppDef("app", roles), {"grace_s": 1, "validate_spec": False})
"""  # noqa: E501 - a program

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def place():
    with own_place() as found:
        yield found


@pytest.fixture
def scheduler(place, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", kubeconfig_for(place, tmp_path / "kubeconfig"))
    made = create_scheduler("test")
    yield made
    made.close()


def left(place):
    """All objects of ours that are not being deleted."""
    return [
        f"{kind.plural}/{item['metadata']['name']}"
        for kind in (JOBS, SERVICES, CONFIG_MAPS, PODS)
        for item in place.kube.list_objects(Selection(kind, place.namespace, OURS)).items
        if "deletionTimestamp" not in item["metadata"]
    ]


def settled(scheduler, app_id):
    """The app when it has ended, or is known to be submitted by halves."""

    def known():
        found = scheduler.describe(app_id)
        assert found is not None
        return found if is_terminal(found.state) or "half-submitted" in found.msg else None

    return until(known)


def test_killed_at_any_moment_nothing_runs_by_halves(place, scheduler):
    """Ever later, until launchers get done before they are killed."""
    outcomes = []
    while outcomes.count("whole") < 2:
        with subprocess.Popen(
            [sys.executable, "-c", LAUNCH, IMAGE], stdout=subprocess.PIPE, text=True
        ) as process:
            process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.04 + 0.012 * len(outcomes))
            process.kill()
        rows = scheduler.list()
        assert len(rows) <= 1
        outcome = "nothing"
        for row in rows:
            found = settled(scheduler, row.app_id)
            states = {r.state for role in found.roles_statuses for r in role.replicas}
            outcome = "whole" if found.state is AppState.SUCCEEDED else "half"
            assert states == {AppState.SUCCEEDED if outcome == "whole" else AppState.PENDING}
            scheduler.delete(row.app_id)
        until(lambda: not left(place))
        outcomes.append(outcome)
        assert len(outcomes) < 200, outcomes


def test_a_submission_over_the_quota_is_told_in_one_line(place, scheduler):
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one-job"}}
    spec = {"hard": {"count/jobs.batch": "1"}}
    place.kube.create(QUOTAS, place.namespace, {**head, "spec": spec})
    known = Selection(QUOTAS, place.namespace)
    until(lambda: place.kube.list_objects(known).items[0].get("status", {}).get("used"))
    try:
        app = an_app("true")
        app.roles.append(an_app("true").roles[0])
        app.roles[1].name = "s"
        with pytest.raises(TorchXError, match="exceeded quota: one-job") as refused:
            scheduler.submit(app, {"validate_spec": False})
        assert len(str(refused.value).splitlines()) == 1
        until(lambda: not left(place))
    finally:
        place.kube.delete(QUOTAS, place.namespace, "one-job")


def test_what_was_deleted_is_gone_with_all_that_belonged_to_it(place, scheduler):
    app = an_app("sleep 100", replicas=2)
    app.roles.append(an_app("sleep 100").roles[0])
    app.roles[1].name = "s"
    app_id = scheduler.submit(app, {"grace_s": 1})
    handle = f"kubernetes://x/{app_id}"
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] in ("PENDING", "RUNNING")
    assert len([name for name in left(place) if not name.startswith("pods/")]) == 4
    assert torchx("delete", handle).returncode == 0
    until(lambda: not left(place))
