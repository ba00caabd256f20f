"""Tracks runs in MLflow. Needs ``torchx[mlflow]``.

A run of TorchX is the MLflow run of that name, in one experiment: metadata are its tags, artifacts
are uploaded.
"""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torchx._files import exclusive_lock
from torchx.errors import AmbiguousRun as AmbiguousRun
from torchx.errors import InvalidInput, NotInstalled
from torchx.settings import ENV_TORCHX_JOB_ID, ENV_TORCHX_TRACKING_EXPERIMENT_NAME
from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run

__all__ = ["ENV_TORCHX_TRACKING_EXPERIMENT_NAME", "MLflowTracker", "create_tracker"]


_RUN_NAME_TAG = "mlflow.runName"
_ARTIFACT_TAG = "torchx.artifact.metadata."
_FILE_SIZE = "mlflow.file_size"
_SETTINGS = ("tracking_uri", "artifact_location")

_SETTLE_S = 2.0  # in which every replica that found no run has created one
_YOUNG_S = 10.0  # longer, because clocks of machines differ

_ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""Newer MLflow refuses stores that are folders, as the default is, unless this is set."""

_Primitive = (str, int, float, bool, type(None))


def _mlflow() -> Any:
    try:
        import mlflow
    except ModuleNotFoundError as err:
        msg = f"the MLflow tracker needs mlflow: {err}"
        raise NotInstalled(msg, name=err.name, extra="mlflow") from None
    return mlflow


def _default_tracking_uri() -> str:
    return f"file://{tempfile.gettempdir()}/torchx/mlruns"


class MLflowTracker(TrackerBase):
    """Tracks runs in one experiment, which is made if it does not exist.

    Args:
        experiment_name: ``default_experiment_name()`` for ``None``.
        tracking_uri: of MLflow's store or server.
        artifact_location: where a new experiment keeps artifacts; MLflow's choice for ``None``.
    """

    def __init__(
        self,
        experiment_name: str | None = None,
        tracking_uri: str = _default_tracking_uri(),
        artifact_location: str | None = None,
    ) -> None:
        mlflow = _mlflow()
        self.tracking_uri = tracking_uri
        if tracking_uri == _default_tracking_uri():
            os.environ.setdefault(_ALLOW_FILES, "true")
        mlflow.set_tracking_uri(tracking_uri)
        name = experiment_name or self.default_experiment_name()
        job_id = os.environ.get(ENV_TORCHX_JOB_ID)
        with _on_rank0_first():
            with _exclusive(tracking_uri):
                self.experiment: Experiment = _get_or_create(name, artifact_location)
            if job_id:
                self.get_run(job_id)

    @staticmethod
    def default_experiment_name() -> str:
        """``default-experiment/{user}/{host}``."""
        import getpass
        import socket

        return f"default-experiment/{getpass.getuser()}/{socket.getfqdn()}"

    @property
    def experiment_id(self) -> str:
        """Id of the experiment."""
        return str(self.experiment.experiment_id)

    @property
    def experiment_name(self) -> str:
        """Name of the experiment."""
        return str(self.experiment.name)

    @property
    def artifact_location(self) -> str:
        """URI below which the experiment keeps artifacts."""
        return str(self.experiment.artifact_location)

    def get_run(self, run_name: str) -> "Run":
        """Returns the active run, whatever its name; else the run of that name, which becomes
        active.

        A run that does not exist is started. Replicas that start at the same time get the same run:
        in a local store they take turns; elsewhere each starts one, and after a moment all choose
        the oldest and remove the others.

        Raises:
            RuntimeError: if more than one run has the name, and it is not that of this job.
        """
        mlflow = _mlflow()
        active = mlflow.active_run()
        if active is not None:
            return mlflow.get_run(active.info.run_id)
        with _exclusive(self.tracking_uri) as alone:
            found = self._search(run_name)
            if not found:
                made = mlflow.start_run(experiment_id=self.experiment_id, run_name=run_name)
                return made if alone else self._elect(made, run_name)
            if not alone and _is_young(found[-1]):
                time.sleep(_SETTLE_S)
                found = self._search(run_name) or found
            elif len(found) > 1 and run_name != os.environ.get(ENV_TORCHX_JOB_ID):
                msg = (
                    f"More than 1 run found for run_name `{run_name}` in experiment"
                    f" `{self.experiment_name}`: {[run.info.run_id for run in found]};"
                    " rename or delete all but one"
                )
                raise AmbiguousRun(msg)
            return self._resume(found[0])

    def _elect(self, made: "Run", run_name: str) -> "Run":
        """Returns the run that all replicas choose; ``made`` is removed if it is another."""
        from mlflow.tracking import MlflowClient

        time.sleep(_SETTLE_S)
        found = self._search(run_name)
        ids = [run.info.run_id for run in found]
        if made.info.run_id not in ids[1:]:
            return made
        _mlflow().end_run()
        MlflowClient().delete_run(made.info.run_id)
        return self._resume(found[0])

    def _resume(self, run: "Run") -> "Run":
        mlflow = _mlflow()
        mlflow.start_run(run_id=run.info.run_id, experiment_id=self.experiment_id)
        return mlflow.get_run(run.info.run_id)

    def get_run_id(self, run_name: str) -> str:
        """Id of ``get_run(run_name)``."""
        return str(self.get_run(run_name).info.run_id)

    def close(self) -> None:
        """Ends the active run; needed before another one is used."""
        _mlflow().end_run()

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Sets tags; they are read back as text."""
        self.get_run(run_id)
        _mlflow().set_tags(kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Returns the tags of the run, including MLflow's own; empty for an unknown run."""
        run = self._look(run_id)
        return dict(run.data.tags) if run is not None else {}

    def add_artifact(
        self,
        run_id: str,
        name: str,
        path: str,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Uploads a local file into the folder ``name`` of the run's artifacts."""
        mlflow = _mlflow()
        self.get_run(run_id)
        mlflow.log_artifact(path, name)
        if metadata:
            prefix = f"{_ARTIFACT_TAG}{name}."
            mlflow.set_tags({f"{prefix}{key}": value for key, value in metadata.items()})

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Artifacts by the folder that they are in; empty for an unknown run."""
        run = self._look(run_id)
        if run is None:
            return {}
        base = str(run.info.artifact_uri).rstrip("/")
        found = {}
        for info in self._files(run.info.run_id, None):
            name, _, _file = info.path.rpartition("/")
            prefix = f"{_ARTIFACT_TAG}{name}."
            metadata: dict[str, object] = {
                key.removeprefix(prefix): value
                for key, value in run.data.tags.items()
                if key.startswith(prefix)
            }
            metadata[_FILE_SIZE] = info.file_size
            found[name] = TrackerArtifact(name, f"{base}/{info.path}", metadata)
        return found

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Names of the experiment's runs; filters are ignored."""
        tags = [run.data.tags for run in reversed(self._search(None))]
        return list(dict.fromkeys(t[_RUN_NAME_TAG] for t in tags if _RUN_NAME_TAG in t))

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Not supported: MLflow has no sources.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the MLflow tracker does not keep sources")

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Not supported: MLflow has no sources.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the MLflow tracker does not keep sources")

    def lineage(self, run_id: str) -> Lineage:
        """Not supported: MLflow has no lineage.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the MLflow tracker does not keep lineage")

    def log_params_flat(self, run_name: str, cfg: Any, key: str = "") -> None:
        """Logs a config as parameters with dotted names.

        Dataclasses and mappings become ``a.b``; sequences of plain values stay whole, those of
        others become ``a._0.b``; what is empty is logged as it is.
        """
        self.get_run(run_name)
        params = dict(_flatten(cfg, key))
        if params:
            _mlflow().log_params(params)

    def _look(self, run_name: str) -> "Run | None":
        """Returns the run of that name, without starting or activating it."""
        found = self._search(run_name)
        return found[0] if found else None

    def _search(self, run_name: str | None) -> "list[Run]":
        """Runs of that name, or all, the oldest first."""
        mlflow = _mlflow()
        text = "" if run_name is None else f"tags.`{_RUN_NAME_TAG}` = {_literal(run_name)}"
        runs = mlflow.search_runs(
            experiment_ids=[self.experiment_id], filter_string=text, output_format="list"
        )
        return sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))

    def _files(self, mlflow_id: str, folder: str | None) -> Iterator[Any]:
        from mlflow.tracking import MlflowClient

        for info in MlflowClient().list_artifacts(mlflow_id, folder):
            if info.is_dir:
                yield from self._files(mlflow_id, info.path)
            else:
                yield info


def _get_or_create(name: str, artifact_location: str | None) -> Any:
    mlflow = _mlflow()
    experiment = mlflow.get_experiment_by_name(name)
    if experiment is not None:
        return experiment
    try:
        created = mlflow.create_experiment(name, artifact_location=artifact_location)
    except mlflow.MlflowException:
        experiment = mlflow.get_experiment_by_name(name)  # another replica was faster
        if experiment is None:
            raise
        return experiment
    return mlflow.get_experiment(created)


def _is_young(run: "Run") -> bool:
    """Returns True if other replicas may still be starting runs of its name."""
    return bool(time.time() - run.info.start_time / 1000 < _YOUNG_S)


@contextmanager
def _exclusive(tracking_uri: str) -> Iterator[bool]:
    """Locks a local store for the block; yields whether it is locked."""
    folder = _local_folder(tracking_uri)
    if folder is None:
        yield False
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        yield False
        return
    with exclusive_lock(folder) as locked:  # a folder can be locked, which leaves no file
        yield locked


def _local_folder(tracking_uri: str) -> str | None:
    """Returns the folder of a local store; ``None`` for other stores.

    >>> _local_folder("sqlite:////data/mlflow.db"), _local_folder("file:///tmp/torchx/mlruns")
    ('/data', '/tmp/torchx')
    >>> _local_folder("http://mlflow:5000")
    """
    scheme, colon, rest = tracking_uri.partition(":")
    if scheme.partition("+")[0] == "sqlite":
        path = rest.removeprefix("///").partition("?")[0]
        if path in ("", "//", ":memory:"):
            return None
    elif scheme == "file":
        path = rest.removeprefix("//")
    elif colon or tracking_uri == "databricks":
        return None
    else:
        path = tracking_uri
    return os.path.dirname(os.path.abspath(path))


def _literal(text: str) -> str:
    """Quotes a text for MLflow's search syntax, which has no escapes."""
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    msg = f"the name of an MLflow run cannot have both kinds of quotes, given: {text}"
    raise InvalidInput(msg)


def _on_rank0_first() -> AbstractContextManager[None]:
    """Lets rank 0 go first where PyTorch is in use."""
    import sys

    if "torch" not in sys.modules:
        return nullcontext()
    from torchx.distributed import on_rank0_first

    return on_rank0_first()


def _flatten(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    import dataclasses

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flatten(item, f"{key}.{name}" if key else str(name))
    elif _is_objects(value):
        for i, item in enumerate(value):
            yield from _flatten(item, f"{key}._{i}" if key else f"_{i}")
    else:
        yield key, value


def _is_objects(value: Any) -> bool:
    """Returns True for a sequence of dataclasses, mappings or sequences."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return False
    return bool(value) and not all(isinstance(item, _Primitive) for item in value)


def create_tracker(config: str | None) -> MLflowTracker:
    """Creates the tracker that section ``[tracker:mlflow]`` of a ``.torchxconfig`` describes.

    Args:
        config: the folder that the file is in; the working directory for ``None``.

    Raises:
        ValueError: for an unknown setting.
    """
    from torchx.runner.config import get_configs

    settings = get_configs("tracker", "mlflow", dirs=[config or "."])
    settings.pop("config", None)
    name = settings.pop("experiment_name", None)
    name = os.environ.get(ENV_TORCHX_TRACKING_EXPERIMENT_NAME) or name
    unknown = sorted(settings.keys() - set(_SETTINGS))
    if unknown:
        msg = (
            f"unknown settings in section `[tracker:mlflow]`: {', '.join(unknown)};"
            f" there are: experiment_name, {', '.join(_SETTINGS)}"
        )
        raise InvalidInput(msg)
    return MLflowTracker(experiment_name=name, **settings)
