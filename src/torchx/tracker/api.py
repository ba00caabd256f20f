"""Backends of trackers, and the job's view of its run."""

import abc
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torchx import plugins
from torchx._startup.lazy_logger import get_logger
from torchx._tracker_environment import (
    factory_in,
    setting_in,
    split_names,
    tracker_config_env_var_name,
)
from torchx.settings import (
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
    ENV_TORCHX_TRACKERS,
    ENV_TORCHX_TRACKERS_ON_ERROR,
)
from torchx.util.entrypoints import check_loads
from torchx.util.modules import load_module

__all__ = [
    "ENV_TORCHX_JOB_ID",
    "ENV_TORCHX_PARENT_RUN_ID",
    "ENV_TORCHX_TRACKERS",
    "AppRun",
    "AppRunTrackableSource",
    "Lineage",
    "TrackerArtifact",
    "TrackerBase",
    "TrackerSource",
    "build_trackers",
    "tracker_config_env_var_name",
    "trackers_from_environ",
]

_UNDEFINED_ID = "<UNDEFINED>"

logger = get_logger(__name__)


@dataclass
class TrackerSource:
    """A source of a run: another run, an artifact of it, or anything with a name.

    Args:
        source_run_id: id of another run, or any other name of a source.
        artifact_name: the artifact of that run; ``None`` for the run as a whole.
    """

    source_run_id: str
    artifact_name: str | None


@dataclass
class TrackerArtifact:
    """An output of a run that is stored elsewhere.

    Args:
        path: where it is; stored as it is given.
    """

    name: str
    path: str
    metadata: Mapping[str, object] | None


@dataclass
class Lineage:
    """The sources and the descendants of a run.

    Args:
        sources: of the run.
        descendants: runs that have it as a source, with the artifact that they used.
    """

    sources: list[TrackerSource] = field(default_factory=list)
    descendants: list[TrackerSource] = field(default_factory=list)


class TrackerBase(abc.ABC):
    """Stores what runs track. Created by a factory ``(config: str | None) -> TrackerBase``."""

    @abc.abstractmethod
    def add_artifact(
        self,
        run_id: str,
        name: str,
        path: str,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Records an artifact of the run, replacing an earlier one of that name."""

    @abc.abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Artifacts of the run by name; empty for an unknown run."""

    @abc.abstractmethod
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Records values by name; an existing name gets the new value, others are kept."""

    @abc.abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """All values of the run by name; empty for an unknown run."""

    @abc.abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Records a source of the run, or one artifact of that source."""

    @abc.abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Sources of the run; only those with that artifact, if one is given."""

    @abc.abstractmethod
    def lineage(self, run_id: str) -> Lineage:
        """Sources and descendants of the run.

        Raises:
            NotImplementedError: if the backend cannot tell.
        """

    @abc.abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Ids of runs. ``parent_run_id=`` keeps those that have that run as a source."""


@dataclass
class AppRunTrackableSource:
    """A source of a run, as a run whose own data can be read."""

    parent: "AppRun"
    artifact_name: str | None


@dataclass
class AppRun:
    """A run and the backends that track it.

    >>> run = AppRun(id="local_cwd://torchx/train-x1", backends=[])
    >>> run.add_metadata(lr=0.1)  # goes to every backend; here there is none

    Args:
        id: the handle of the job.
    """

    id: str
    backends: Iterable[TrackerBase]

    @staticmethod
    @lru_cache(maxsize=1)
    def run_from_env() -> "AppRun":
        """Returns the run described by this process's environment; created once.

        Without a launcher its id is ``<UNDEFINED>`` and it has no backends. A parent run is
        recorded as a source, with a warning if a backend does not store sources.
        """
        run_id = os.environ.get(ENV_TORCHX_JOB_ID, _UNDEFINED_ID)
        backends = trackers_from_environ()
        parent = os.environ.get(ENV_TORCHX_PARENT_RUN_ID)
        if parent:
            for backend in backends:
                _add_parent(backend, run_id, parent)
        return AppRun(id=run_id, backends=backends)

    def job_id(self) -> str:
        """Id of the run, which is the handle of the job."""
        return self.id

    def add_metadata(self, **kwargs: object) -> None:
        """``TrackerBase.add_metadata`` of every backend."""
        for backend in self.backends:
            backend.add_metadata(self.id, **kwargs)

    def add_artifact(
        self, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """``TrackerBase.add_artifact`` of every backend."""
        for backend in self.backends:
            backend.add_artifact(self.id, name, path, metadata)

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """``TrackerBase.add_source`` of every backend."""
        for backend in self.backends:
            backend.add_source(self.id, source_id, artifact_name)

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Sources of the run, from the first backend; empty without backends."""
        for backend in self.backends:
            return [
                AppRunTrackableSource(
                    AppRun(source.source_run_id, self.backends), source.artifact_name
                )
                for source in backend.sources(self.id)
            ]
        return []

    def children(self) -> Iterable["AppRun"]:
        """Runs that have this one as a source, from the first backend."""
        for backend in self.backends:
            children = backend.run_ids(parent_run_id=self.id)
            return [AppRun(run_id, self.backends) for run_id in children]
        return []


def _add_parent(backend: TrackerBase, run_id: str, parent: str) -> None:
    try:
        backend.add_source(run_id, parent, artifact_name=None)
    except NotImplementedError as err:  # a parent run set by the launcher must not fail the job
        logger.warning(
            "the parent run `%s` is not recorded by %s: %s",
            parent,
            type(backend).__name__,
            err or "it keeps no sources",
        )


def trackers_from_environ() -> Iterable[TrackerBase]:
    """The backends that ``TORCHX_TRACKERS`` names; none if it is not set.

    With ``TORCHX_TRACKERS_ON_ERROR=warn`` a backend that cannot be made is left out with a
    warning; otherwise what its factory raises ends the job.
    """
    named = _extract_tracker_name_and_config_from_environ()
    if not named:
        return []
    factories = {name: found for name in named if (found := factory_in(os.environ, name))}
    tolerant = os.environ.get(ENV_TORCHX_TRACKERS_ON_ERROR, "raise").lower() == "warn"
    return _build(named, factories, tolerant=tolerant)


def _extract_tracker_name_and_config_from_environ() -> Mapping[str, str | None]:
    names = split_names(os.environ.get(ENV_TORCHX_TRACKERS, ""))
    return {name: setting_in(os.environ, name) for name in names}


def build_trackers(
    factory_and_config: Mapping[str, str | None], factories: Mapping[str, str] | None = None
) -> Iterable[TrackerBase]:
    """Makes trackers; a name for which there is no factory is left out with a warning.

    Args:
        factory_and_config: name of a plugin or ``module:function`` → its configuration.
        factories: what to use for names that are neither: name → plugin or ``module:function``.
    """
    return _build(factory_and_config, factories or {}, tolerant=False)


def _build(
    named: Mapping[str, str | None], factories: Mapping[str, str], *, tolerant: bool
) -> list[TrackerBase]:
    if not named:
        return []
    registered = plugins.registry().get(plugins.PluginType.TRACKER)
    if not registered:
        logger.warning("no tracker plugins are installed; tracker names are read as modules")
    trackers: list[TrackerBase] = []
    for name, config in named.items():
        factory = _factory(name, factories, registered)
        if factory is None:
            continue
        try:
            check_loads(factory, "tracker")
            trackers.append(factory(config))
        except Exception as err:
            if not tolerant:
                raise
            logger.warning(
                "nothing is tracked by `%s`, it cannot be made: %s: %s",
                name,
                type(err).__name__,
                err,
            )
    return trackers


def _factory(
    name: str, factories: Mapping[str, str], registered: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any] | None:
    wanted = factories.get(name)
    if wanted and wanted != name:
        found = registered.get(wanted) or load_module(wanted)
        if callable(found):
            return found
        logger.warning(
            "tracker `%s` is configured as `%s`, which is neither an installed tracker plugin nor"
            " `module:function`; looking for `%s` itself",
            name,
            wanted,
            name,
        )
    found = registered.get(name) or load_module(name)
    if callable(found):
        return found
    logger.warning(
        "tracker `%s` is left out: it is neither an installed tracker plugin nor"
        " `module:function`; `torchx plugins` shows what is installed",
        name,
    )
    return None
