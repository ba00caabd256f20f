"""The job's side of tracking: which backends are made, and what goes to them."""

import sys
import types
from collections.abc import Iterable, Iterator, Mapping

import pytest

import torchx.settings
from torchx.plugins import registry
from torchx.tracker import AppRun, app_run_from_env
from torchx.tracker import api as tracker_api
from torchx.tracker.api import (
    AppRunTrackableSource,
    Lineage,
    TrackerArtifact,
    TrackerBase,
    TrackerSource,
    build_trackers,
    tracker_config_env_var_name,
    trackers_from_environ,
)
from torchx.util import session


class Memory(TrackerBase):
    """Keeps everything in dicts."""

    def __init__(self, config: str | None = None) -> None:
        self.config = config
        self.calls: list[tuple[object, ...]] = []
        self.stored: dict[str, dict[str, object]] = {}
        self.linked: dict[str, list[TrackerSource]] = {}

    def add_artifact(self, *args: object, **kwargs: object) -> None:
        self.calls.append(("add_artifact", args, kwargs))

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        return {}

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        self.stored.setdefault(run_id, {}).update(kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        return self.stored.get(run_id, {})

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        self.linked.setdefault(run_id, []).append(TrackerSource(source_id, artifact_name))

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        return self.linked.get(run_id, [])

    def lineage(self, run_id: str) -> Lineage:
        return Lineage()

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        parent = kwargs["parent_run_id"]
        return [
            run_id
            for run_id, links in self.linked.items()
            if any(link.source_run_id == parent for link in links)
        ]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    AppRun.run_from_env.cache_clear()
    yield
    AppRun.run_from_env.cache_clear()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("acme_trk")
    made.made = []  # type: ignore[attr-defined]

    def make(config: str | None) -> Memory:
        tracker = Memory(config)
        made.made.append(tracker)  # type: ignore[attr-defined]
        return tracker

    def fail(config: str | None) -> Memory:
        raise OSError("the server is down")

    made.make, made.fail = make, fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_trk", made)
    return made


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType) -> None:
    """Registers the module's factory as `tracker1`."""

    class Registry:
        def get(self, kind: object) -> dict[str, object]:
            return {"tracker1": module.make}  # type: ignore[attr-defined]

    class Plugins:
        PluginType = tracker_api.plugins.PluginType

        @staticmethod
        def registry() -> Registry:
            return Registry()

    monkeypatch.setattr(tracker_api, "plugins", Plugins)


def test_names_of_variables_are_one_object() -> None:
    assert tracker_api.ENV_TORCHX_TRACKERS is torchx.settings.ENV_TORCHX_TRACKERS
    assert tracker_api.ENV_TORCHX_JOB_ID is torchx.settings.ENV_TORCHX_JOB_ID
    assert tracker_api.ENV_TORCHX_PARENT_RUN_ID is torchx.settings.ENV_TORCHX_PARENT_RUN_ID
    assert session.TORCHX_INTERNAL_SESSION_ID is torchx.settings.ENV_TORCHX_INTERNAL_SESSION_ID


def test_the_interface_has_eight_abstract_methods() -> None:
    assert TrackerBase.__abstractmethods__ == {
        "add_artifact",
        "artifacts",
        "add_metadata",
        "metadata",
        "add_source",
        "sources",
        "lineage",
        "run_ids",
    }


def test_without_a_launcher_nothing_is_tracked() -> None:
    run = app_run_from_env()
    assert run.job_id() == "<UNDEFINED>"
    assert list(run.backends) == []
    run.add_metadata(a=1)
    run.add_artifact("a", "/p")
    run.add_source("x")
    assert list(run.sources()) == []
    assert list(run.children()) == []


def test_the_run_is_made_once() -> None:
    assert app_run_from_env() is app_run_from_env()


@pytest.mark.usefixtures("registered")
def test_a_launched_job_has_its_backend_and_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "run_id")
    monkeypatch.setenv("TORCHX_TRACKERS", "tracker1")
    monkeypatch.setenv("TORCHX_TRACKER_TRACKER1_CONFIG", "myconfig.txt")
    monkeypatch.setenv("TORCHX_PARENT_RUN_ID", "parent")
    run = app_run_from_env()
    (backend,) = run.backends
    assert isinstance(backend, Memory)
    assert (run.id, backend.config) == ("run_id", "myconfig.txt")
    assert backend.sources("run_id") == [TrackerSource("parent", None)]
    (source,) = run.sources()
    assert source == AppRunTrackableSource(AppRun("parent", run.backends), None)
    assert source.parent.backends is run.backends
    assert [child.id for child in AppRun("parent", run.backends).children()] == ["run_id"]


def test_a_backend_without_sources_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    class NoSources(Memory):
        def add_source(self, *args: object, **kwargs: object) -> None:
            raise NotImplementedError("kept nowhere")

    module.none = NoSources  # type: ignore[attr-defined]
    monkeypatch.setenv("TORCHX_JOB_ID", "run")
    monkeypatch.setenv("TORCHX_TRACKERS", "acme_trk:none,acme_trk:make")
    monkeypatch.setenv("TORCHX_PARENT_RUN_ID", "parent")
    run = app_run_from_env()
    assert "the parent run `parent` is not recorded by NoSources: kept nowhere" in caplog.text
    assert module.made[0].sources("run") == [TrackerSource("parent", None)]
    with pytest.raises(NotImplementedError):  # what the program itself asks for is not passed over
        run.add_source("other")


def test_everything_goes_to_every_backend() -> None:
    first, second = Memory(), Memory()
    run = AppRun("r", [first, second])
    run.add_metadata(lr=0.01, bs=25)
    run.add_metadata(bs=10)
    run.add_artifact("m", "/p", {"k": 1})
    for backend in (first, second):
        assert backend.metadata("r") == {"lr": 0.01, "bs": 10}
        assert backend.calls == [("add_artifact", ("r", "m", "/p", {"k": 1}), {})]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {}),
        ({"TORCHX_TRACKERS": "tracker1"}, {"tracker1": None}),
        (
            {"TORCHX_TRACKERS": "tracker1", "TORCHX_TRACKER_TRACKER1_CONFIG": "c.txt"},
            {"tracker1": "c.txt"},
        ),
        ({"TORCHX_TRACKERS": "a, b,,a"}, {"a": None, "b": None}),
        (
            {"TORCHX_TRACKERS": "p.m:f", "TORCHX_TRACKER_P_M_F_CONFIG": "by exportable name"},
            {"p.m:f": "by exportable name"},
        ),
        ({"TORCHX_TRACKERS": "p.m:f", "TORCHX_TRACKER_P.M:F_CONFIG": "c"}, {"p.m:f": "c"}),
    ],
)
def test_names_and_configs_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: dict[str, str | None]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert tracker_api._extract_tracker_name_and_config_from_environ() == expected


def test_the_variable_of_a_config() -> None:
    assert tracker_config_env_var_name("tracker1") == "TORCHX_TRACKER_TRACKER1_CONFIG"


def test_no_trackers_are_built_from_nothing() -> None:
    assert list(build_trackers({})) == []
    assert list(trackers_from_environ()) == []


def test_an_unknown_tracker_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", "no_such_tracker")
    assert list(trackers_from_environ()) == []
    assert "`no_such_tracker` is left out" in caplog.text


def test_a_function_of_a_module_is_a_factory(module: types.ModuleType) -> None:
    (tracker,) = build_trackers({"acme_trk:make": "c"})
    assert module.made == [tracker]
    assert tracker.config == "c"


def test_a_module_is_no_factory(module: types.ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    assert list(build_trackers({"acme_trk": "c"})) == []
    assert "`acme_trk` is left out" in caplog.text


@pytest.mark.usefixtures("registered")
def test_a_plugin_wins_over_a_module_of_its_name(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType
) -> None:
    monkeypatch.setitem(sys.modules, "tracker1", types.ModuleType("tracker1"))
    assert list(build_trackers({"tracker1": None})) == module.made


def test_without_plugins_modules_are_still_tried(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", "0")
    registry.cache_clear()
    assert list(build_trackers({"acme_trk:make": None})) == module.made
    assert "no tracker plugins are installed" in caplog.text


def test_an_alias_names_its_factory(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType
) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", "mine")
    monkeypatch.setenv("TORCHX_TRACKER_MINE_FACTORY", "acme_trk:make")
    monkeypatch.setenv("TORCHX_TRACKER_MINE_CONFIG", "c")
    (tracker,) = trackers_from_environ()
    assert isinstance(tracker, Memory)
    assert tracker.config == "c"


@pytest.mark.usefixtures("registered")
def test_a_value_that_is_no_factory_leaves_the_key_in_charge(
    module: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    trackers = build_trackers({"tracker1": None}, {"tracker1": "just a note"})
    assert list(trackers) == module.made
    assert "configured as `just a note`" in caplog.text


@pytest.mark.usefixtures("module")
def test_a_failing_factory_ends_the_job_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", "acme_trk:fail,acme_trk:make")
    with pytest.raises(OSError, match="the server is down"):
        app_run_from_env()
    monkeypatch.setenv("TORCHX_TRACKERS_ON_ERROR", "warn")
    assert len(list(app_run_from_env().backends)) == 1
    assert "nothing is tracked by `acme_trk:fail`" in caplog.text
