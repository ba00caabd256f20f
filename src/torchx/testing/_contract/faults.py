"""Tests with a backend that refuses, is away or is missing, and of the number of queries."""

import io
import re
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest

from torchx.cli.cmd_log import get_logs
from torchx.errors import BackendUnavailable, TorchXError
from torchx.schedulers.api import AppDef, CfgVal, DescribeAppResponse, Scheduler
from torchx.schedulers.ids import random_id
from torchx.specs.api import AppState, BindMount, Resource, is_terminal, macros
from torchx.testing._contract.jobs import APP, REFUSED, WORKER, ContractParts, Jobs
from torchx.testing._contract.life import FOREVER
from torchx.testing._contract.merged import refuses
from torchx.testing._contract.states import Watching, runner_of

Breaks = Callable[[], AbstractContextManager[object]]

NEVER_GIVEN = "7654321"
"""An id of no job: one that ran may still be known from the backend's last answer."""

AWKWARD_NAMES = ["a.b", "a-b", "A_B", "x" * 70 + "1", "x" * 70 + "2"]
"""Names that are alike once a backend has made them fit its rules."""


class FaultContract(ContractParts):
    """Tests with a failing backend.

    A scheduler's test class defines the fixtures that break its backend; without one, its rows are
    skipped and say so.
    """

    many_replicas: int = 300
    """How many replicas the app has whose queries are compared with those of 3."""

    most_queries: dict[str, int] = {"describe": 1, "list": 1, "cancel": 2, "delete": 20, "log": 1}  # noqa: RUF012 - a subclass replaces it
    """Questions and orders to the backend that one verb may take, log streams apart."""

    # -- fixtures of the scheduler's tests --------------------------------------------------

    @pytest.fixture
    def backend_away(self) -> Breaks:
        """A context manager in which the backend does not answer."""
        pytest.skip("the tests of this scheduler define no fixture `backend_away`")

    @pytest.fixture
    def backend_missing(self) -> Breaks:
        """A context manager in which the programs or packages of the backend are not installed."""
        pytest.skip("the tests of this scheduler define no fixture `backend_missing`")

    @pytest.fixture
    def refuse_submission(self) -> "Callable[[int], AbstractContextManager[object]]":
        """A context manager in which the native call after so many others refuses."""
        pytest.skip("the tests of this scheduler define no fixture `refuse_submission`")

    @pytest.fixture
    def refuse_end(self) -> Breaks:
        """A context manager in which the backend answers, and refuses to end anything."""
        pytest.skip("the tests of this scheduler define no fixture `refuse_end`")

    @pytest.fixture
    def native_objects(self) -> "Callable[[], Collection[str]]":
        """Names of all that the backend keeps of apps that have not ended."""
        pytest.skip("the tests of this scheduler define no fixture `native_objects`")

    @pytest.fixture
    def submitted(self) -> "Callable[[str], str]":
        """All that the backend got of an app, as text."""
        pytest.skip("the tests of this scheduler define no fixture `submitted`")

    @pytest.fixture
    def queries(self) -> "Callable[[], int]":
        """Returns the number of requests that the backend has received, without log streams."""
        pytest.skip("the tests of this scheduler define no fixture `queries`")

    # -- the backend is away ----------------------------------------------------------------

    def test_submitting_to_a_backend_that_is_away_leaves_nothing(
        self, jobs: Jobs, backend_away: Breaks
    ) -> None:
        app = jobs.sh(FOREVER)
        app.name = f"away{random_id(8)}"  # other tests may use the backend at the same time
        with backend_away(), pytest.raises(BackendUnavailable):
            jobs.start(app)
        if jobs.scheduler.features.list:
            live = [row for row in jobs.scheduler.list() if not is_terminal(row.state)]
            assert [row for row in live if app.name in (row.app_id + row.name)] == []

    def test_a_backend_that_is_away_is_not_an_unknown_app(
        self, scheduler: Scheduler[Any], jobs: Jobs, backend_away: Breaks
    ) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        with backend_away(), pytest.raises(BackendUnavailable):
            scheduler.describe(app_id)
        assert not is_terminal(jobs.describe(app_id).state)

    def test_waiting_outlives_an_outage(
        self, scheduler: Scheduler[Any], jobs: Jobs, backend_away: Breaks
    ) -> None:
        app_id = jobs.start_running("sleep SECONDS")
        watching = Watching(scheduler, app_id)
        with backend_away():
            jobs.until(lambda: fails(scheduler.describe, app_id))
            threading.Event().wait(1)  # long enough for the watcher to notice
        status = watching.result(self.timeout_s)
        assert status.state is AppState.SUCCEEDED

    def test_following_outlives_an_outage(
        self, scheduler: Scheduler[Any], jobs: Jobs, backend_away: Breaks
    ) -> None:
        jobs.need("logs", "tail")
        script = "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done; printf end"
        app_id = jobs.start(jobs.sh(script))
        lines = iter(scheduler.log_iter(app_id, WORKER, should_tail=True))
        assert next(lines) == "1\n"
        with backend_away():
            jobs.until(lambda: fails(scheduler.describe, app_id))
        assert list(lines) == ["2\n", "3\n", "4\n", "5\n", "6\n", "end"]

    def test_logs_that_are_waited_for_come_after_an_outage(
        self,
        scheduler: Scheduler[Any],
        jobs: Jobs,
        backend_away: Breaks,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """``torchx log -t`` of an app that has not started when the backend goes away."""
        jobs.need("logs", "tail")
        pending = threading.Event()
        app_id = jobs.start(jobs.sh("sleep 4; printf 'the end\\n'"))
        look, states = scheduler.describe, [AppState.PENDING]

        def looking(app_id: str) -> DescribeAppResponse | None:
            found = look(app_id)
            if states and found is not None:
                found.state = states.pop()
                pending.set()
            return found

        monkeypatch.setattr(scheduler, "describe", looking)
        out = io.StringIO()
        identifier = f"contract://contract/{app_id}/{WORKER}"
        with runner_of(scheduler) as runner, ThreadPoolExecutor(1) as pool:
            following = pool.submit(get_logs, out, identifier, None, True, runner)
            assert pending.wait(self.timeout_s)
            with backend_away():
                jobs.until(lambda: fails(look, app_id))
                threading.Event().wait(0.5)  # long enough for the follower to notice
            following.result(self.timeout_s)
        assert out.getvalue() == f"{WORKER}/0 the end\n"

    def test_cancelling_on_a_backend_that_is_away_says_that_it_did_not_happen(
        self, scheduler: Scheduler[Any], jobs: Jobs, backend_away: Breaks
    ) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        with backend_away(), pytest.raises(BackendUnavailable):
            scheduler.cancel(app_id)
        assert not is_terminal(jobs.describe(app_id).state)
        scheduler.cancel(app_id)
        assert jobs.end(app_id).state is AppState.CANCELLED

    def test_an_end_that_is_refused_is_an_error(
        self, scheduler: Scheduler[Any], jobs: Jobs, refuse_end: Breaks
    ) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        jobs.until(lambda: jobs.describe(app_id).state is AppState.RUNNING)
        for verb in (scheduler.cancel, scheduler.delete):
            with refuse_end(), pytest.raises(TorchXError):
                verb(app_id)
            assert not is_terminal(jobs.describe(app_id).state)

    def test_a_backend_that_is_not_installed_is_an_error_of_ours(
        self, scheduler: Scheduler[Any], jobs: Jobs, backend_missing: Breaks
    ) -> None:
        with backend_missing():
            with pytest.raises(TorchXError):
                jobs.start(jobs.sh("true"))
            with pytest.raises(TorchXError):
                scheduler.describe(NEVER_GIVEN)

    # -- submissions that fail --------------------------------------------------------------

    @pytest.mark.parametrize("after", [0, 1, 2])
    def test_a_submission_that_is_refused_leaves_nothing(
        self,
        jobs: Jobs,
        refuse_submission: "Callable[[int], AbstractContextManager[object]]",
        native_objects: "Callable[[], Collection[str]]",
        after: int,
    ) -> None:
        before = {*native_objects()}
        names = "ab" if jobs.scheduler.features.multi_role else "a"
        roles = [jobs.role("sh", "-c", FOREVER, name=name, num_replicas=2) for name in names]
        with refuse_submission(after):
            try:
                app_id = jobs.start(AppDef(APP, roles))
            except TorchXError:
                jobs.until(lambda: {*native_objects()} == before)
                return
        # fewer calls than that submit the app
        assert not is_terminal(jobs.describe(app_id).state)

    # -- what the backend gets --------------------------------------------------------------

    def test_the_backend_gets_what_the_dryrun_shows(
        self,
        scheduler: Scheduler[Any],
        opts: dict[str, CfgVal],
        jobs: Jobs,
        submitted: "Callable[[str], str]",
    ) -> None:
        app = jobs.sh("echo marker-of-args", env={"MARKER": "marker-of-env"})
        info = scheduler.submit_dryrun(app, opts)
        app_id = jobs.schedule(info)
        got = submitted(app_id)
        for marker in ("marker-of-args", "marker-of-env"):
            assert marker in str(info)
            assert marker in got

    def test_mounts_are_in_the_request_or_refused(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = jobs.sh("true", mounts=[BindMount("/tmp", "/marker-of-mount")])
        if "mounts" in scheduler.features.left_out:
            scheduler.submit_dryrun(app, opts)
        elif scheduler.features.mounts:
            assert "/marker-of-mount" in str(scheduler.submit_dryrun(app, opts))
        else:
            with pytest.raises(REFUSED, match="mounts"):
                scheduler.submit_dryrun(app, opts)

    def test_a_mount_of_a_relative_path_is_refused_in_the_dry_run(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        jobs.need("mounts")
        app = jobs.sh("true", mounts=[BindMount("data", "/data")])
        with pytest.raises(ValueError, match=f"{WORKER}.*`data`"):
            scheduler.submit_dryrun(app, opts)

    def test_resources_are_in_the_request(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        if "resource" in scheduler.features.left_out:
            pytest.skip("the scheduler declares that it leaves resources out")
        texts = {
            (cpu, mem): str(
                scheduler.submit_dryrun(jobs.sh("true", resource=Resource(cpu, 0, mem)), opts)
            )
            for cpu, mem in ((1, 640), (1, 1280), (2, 1280))
        }
        ids = {key: mask_ids(text) for key, text in texts.items()}
        assert ids[1, 640] != ids[1, 1280], "memory makes no difference"
        assert ids[1, 1280] != ids[2, 1280], "CPUs make no difference"

    def test_awkward_names_stay_apart_or_are_refused(self, jobs: Jobs) -> None:
        jobs.need("multi_role", "logs")
        roles = [jobs.role("sh", "-c", f"echo {i}", name=n) for i, n in enumerate(AWKWARD_NAMES)]
        try:
            app_id = jobs.run(AppDef(APP, roles))
        except ValueError as err:
            assert any(name in str(err) for name in AWKWARD_NAMES)  # noqa: PT017 - one of two right ways
            return
        assert [jobs.lines(app_id, name) for name in AWKWARD_NAMES] == [
            [f"{i}\n"] for i in range(len(AWKWARD_NAMES))
        ]

    @pytest.mark.parametrize(
        ("where", "more"),
        [
            ("args", {"args": ["-c", "true", "a\0b"]}),
            ("args", {"args": ["-c", "true", "a\ud800b"]}),
            ("env", {"env": {"A": "a\0b"}}),
            ("env", {"env": {"A=B": "x"}}),
            ("env", {"env": {"": "x"}}),
        ],
    )
    def test_what_no_process_can_receive_is_refused(
        self,
        scheduler: Scheduler[Any],
        opts: dict[str, CfgVal],
        jobs: Jobs,
        where: str,
        more: dict[str, Any],
    ) -> None:
        role = jobs.role("sh", "-c", "true")
        for name, value in more.items():
            setattr(role, name, value)
        with pytest.raises(ValueError, match=WORKER):
            scheduler.submit_dryrun(AppDef(APP, [role]), opts)

    def test_more_replicas_than_can_be_are_refused_at_once(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        with pytest.raises(ValueError, match=WORKER):
            scheduler.submit_dryrun(jobs.sh("true", num_replicas=10**20), opts)

    # -- one verb, one question -------------------------------------------------------------

    @pytest.mark.parametrize("ends", ["cancel", "delete"])
    def test_the_number_of_queries_does_not_grow_with_replicas(
        self,
        scheduler: Scheduler[Any],
        jobs: Jobs,
        queries: "Callable[[], int]",
        ends: str,
    ) -> None:
        few, many = (
            self.queries_of_verbs(jobs, queries, ends, replicas)
            for replicas in (3, self.many_replicas)
        )
        most = {"status": self.most_queries["describe"], **self.most_queries}
        assert {verb: n for verb, n in many.items() if n > most[verb]} == {}
        few.pop("delete", None)  # asks now and then whether the app has ended
        assert {verb: many[verb] for verb in few} == few

    def queries_of_verbs(
        self, jobs: Jobs, queries: "Callable[[], int]", ends: str, replicas: int
    ) -> dict[str, int]:
        """Returns the requests of each method for an app with that many running replicas."""
        scheduler = jobs.scheduler
        runner = runner_of(scheduler)  # not closed: that would close the scheduler
        script = f"echo {macros.replica_id}; {FOREVER}"
        app_id = jobs.start(jobs.sh(script, num_replicas=replicas))
        jobs.until(lambda: all_run(jobs.describe(app_id)))
        verbs: dict[str, Callable[[], object]] = {
            "describe": lambda: scheduler.describe(app_id),
            "status": lambda: runner.status(f"contract://contract/{app_id}"),
        }
        if scheduler.features.list:
            verbs["list"] = scheduler.list
        if not refuses(scheduler, "log_blocks"):
            verbs["log"] = lambda: jobs.blocks(app_id)
        verbs[ends] = lambda: getattr(scheduler, ends)(app_id)
        asked = {}
        for verb, call in verbs.items():
            before = queries()
            call()
            asked[verb] = queries() - before
        scheduler.cancel(app_id)
        jobs.until(lambda: has_ended(scheduler.describe(app_id)))  # `list` looks at the rest
        return asked


def has_ended(found: DescribeAppResponse | None) -> bool:
    """Returns True if no replica runs any more, or the app is unknown (``None``)."""
    return found is None or is_terminal(found.state)


def all_run(found: DescribeAppResponse) -> bool:
    """Returns True if every replica is reported as running."""
    states = [replica.state for role in found.roles_statuses for replica in role.replicas]
    return found.state is AppState.RUNNING and all(s is AppState.RUNNING for s in states)


def fails(look: Callable[[str], object], app_id: str) -> bool:
    """Returns True if the outage of the backend is detected."""
    try:
        look(app_id)
    except BackendUnavailable:
        return True
    return False


def mask_ids(text: str) -> str:
    """The text without the random part of ids."""
    return re.sub(rf"{APP}-[a-z0-9]+", f"{APP}-ID", text)
