"""The MLflow backend, on a store of MLflow's own in a temporary folder."""

import multiprocessing
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.mlflow,
    pytest.mark.filterwarnings("ignore"),  # MLflow's own, of which there are many
    pytest.mark.timeout(300),
]
mlflow = pytest.importorskip(
    "mlflow", reason="MLflow is not installed: pip install 'torchx[mlflow]'"
)

from torchx.tracker.api import AppRun  # noqa: E402  after the skip
from torchx.tracker.mlflow import MLflowTracker, create_tracker  # noqa: E402  after the skip

RUN = "local_cwd://torchx/train-x1"


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def tracker(uri: str, tmp_path: Path) -> Iterator[MLflowTracker]:
    made = MLflowTracker("exp", uri, f"file://{tmp_path}/artifacts")
    yield made
    made.close()


def test_the_experiment_is_made_once(tracker: MLflowTracker, uri: str) -> None:
    again = MLflowTracker("exp", uri)
    assert again.experiment_id == tracker.experiment_id
    assert tracker.experiment_name == "exp"
    assert tracker.artifact_location.endswith("/artifacts")
    assert tracker.tracking_uri == uri


def test_the_default_store_is_a_folder_for_temporary_files(tmp_path: Path) -> None:
    code = (
        "from torchx.tracker.mlflow import MLflowTracker\n"
        "made = MLflowTracker('e')\n"
        "made.add_metadata('r', a=1)\n"
        "print(made.metadata('r')['a'])\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
    assert (tmp_path / "torchx/mlruns").is_dir()


def test_the_default_experiment_names_user_and_host() -> None:
    name = MLflowTracker.default_experiment_name()
    assert name.startswith("default-experiment/")
    assert len(name.split("/")) == 3


def test_there_are_no_runs_at_first(tracker: MLflowTracker) -> None:
    assert list(tracker.run_ids()) == []
    assert tracker.metadata(RUN) == {}
    assert tracker.artifacts(RUN) == {}


def test_metadata_are_tags(tracker: MLflowTracker) -> None:
    tracker.add_metadata(RUN, lr=0.1, k="v")
    tracker.add_metadata(RUN, k="w")
    metadata = tracker.metadata(RUN)
    assert (metadata["lr"], metadata["k"]) == ("0.1", "w")
    assert metadata["mlflow.runName"] == RUN
    assert list(tracker.run_ids()) == [RUN]


def test_a_run_is_resumed_by_its_name(tracker: MLflowTracker, uri: str) -> None:
    first = tracker.get_run_id(RUN)
    assert tracker.get_run_id("another, while one is active") == first
    tracker.close()
    other = tracker.get_run_id("other")
    assert other != first
    tracker.close()
    again = MLflowTracker("exp", uri)
    assert again.get_run_id(RUN) == first
    again.add_metadata(RUN, later=1)
    again.close()
    assert tracker.metadata(RUN)["later"] == "1"
    assert sorted(tracker.run_ids()) == sorted([RUN, "other"])


def test_two_runs_of_a_name_are_refused(tracker: MLflowTracker) -> None:
    for _ in range(2):
        mlflow.start_run(experiment_id=tracker.experiment_id, run_name=RUN)
        mlflow.end_run()
    with pytest.raises(RuntimeError, match=f"More than 1 run found for run_name `{RUN}`"):
        tracker.get_run(RUN)


def test_the_job_takes_the_oldest_of_its_runs(
    tracker: MLflowTracker, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(2):
        mlflow.start_run(experiment_id=tracker.experiment_id, run_name=RUN)
        mlflow.set_tags({"k": k})
        mlflow.end_run()
    assert tracker.metadata(RUN)["k"] == "0"
    assert tracker.artifacts(RUN) == {}
    assert tracker.run_ids() == [RUN]
    monkeypatch.setenv("TORCHX_JOB_ID", RUN)
    again = MLflowTracker("exp", uri)
    again.add_metadata(RUN, later=1)
    again.close()
    assert (tracker.metadata(RUN)["k"], tracker.metadata(RUN)["later"]) == ("0", "1")


def replica(uri: str, rank: int, barrier: Any, runs: Any) -> None:
    MLflowTracker("other", uri)  # opens the store, which takes its time
    barrier.wait(60)
    tracker = MLflowTracker("exp", uri)
    tracker.add_metadata(RUN, **{f"rank{rank}": 1})
    runs.put(tracker.get_run_id(RUN))
    tracker.close()


def check_replicas_share_a_run(uri: str, number: int) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, runs = context.Barrier(number), context.Queue()
    processes = [
        context.Process(target=replica, args=(uri, rank, barrier, runs)) for rank in range(number)
    ]
    for process in processes:
        process.start()
    found = {runs.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    reader = MLflowTracker("exp", uri)
    assert reader.run_ids() == [RUN]
    assert {f"rank{rank}" for rank in range(number)} <= reader.metadata(RUN).keys()
    assert len(mlflow.search_runs([reader.experiment_id], output_format="list")) == 1


def test_replicas_that_start_at_once_share_a_run(uri: str) -> None:
    check_replicas_share_a_run(uri, 3)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db"]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None, (tmp_path / "server.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_replicas_share_a_run_of_a_server_too(server: str) -> None:
    check_replicas_share_a_run(server, 3)


def test_artifacts_are_uploaded(tracker: MLflowTracker, tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_text("12345")
    tracker.add_artifact(RUN, "models/best", str(file), {"epoch": 3})
    tracker.add_artifact(RUN, "log", str(file))
    found = tracker.artifacts(RUN)
    assert sorted(found) == ["log", "models/best"]
    best = found["models/best"]
    assert best.metadata == {"epoch": "3", "mlflow.file_size": 5}
    assert best.path.endswith("/artifacts/models/best/model.pt")
    assert best.path.startswith(tracker.artifact_location)
    assert Path(best.path.removeprefix("file://")).read_text() == "12345"


def test_the_job_of_the_environment_is_active_at_once(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", RUN)
    tracker = MLflowTracker("exp", uri)
    assert list(tracker.run_ids()) == [RUN]
    tracker.close()


@dataclass
class Optimizer:
    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass
class Config:
    optimizer: Optimizer = field(default_factory=Optimizer)
    layers: list[dict[str, Any]] = field(default_factory=lambda: [{"n": 1}, {"n": 2}])
    empty: list[int] = field(default_factory=list)


def test_a_config_becomes_flat_parameters(tracker: MLflowTracker) -> None:
    tracker.log_params_flat(RUN, Config())
    assert tracker.get_run(RUN).data.params == {
        "optimizer.name": "adam",
        "optimizer.betas": "(0.9, 0.99)",
        "layers._0.n": "1",
        "layers._1.n": "2",
        "empty": "[]",
    }


def test_what_mlflow_does_not_know_is_refused(tracker: MLflowTracker) -> None:
    with pytest.raises(NotImplementedError):
        tracker.add_source(RUN, "s")
    with pytest.raises(NotImplementedError):
        tracker.sources(RUN)
    with pytest.raises(NotImplementedError):
        tracker.lineage(RUN)


def test_a_parent_run_does_not_end_the_job(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".torchxconfig").write_text(f"[tracker:mlflow]\ntracking_uri = {uri}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHX_JOB_ID", RUN)
    monkeypatch.setenv("TORCHX_TRACKERS", "torchx.tracker.mlflow:create_tracker")
    monkeypatch.setenv("TORCHX_PARENT_RUN_ID", "parent")
    AppRun.run_from_env.cache_clear()
    run = AppRun.run_from_env()
    AppRun.run_from_env.cache_clear()
    run.add_metadata(lr=0.1)
    mlflow.end_run()
    assert "the parent run `parent` is not recorded by MLflowTracker" in caplog.text


def test_a_config_file_makes_a_tracker(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".torchxconfig").write_text(
        "[torchx:tracker]\nmlflow =\n"
        f"[tracker:mlflow]\nconfig = .\nexperiment_name = llm\ntracking_uri = {uri}\n"
    )
    made = create_tracker(str(tmp_path))
    assert (made.experiment_name, made.tracking_uri) == ("llm", uri)
    monkeypatch.setenv("TORCHX_TRACKING_EXPERIMENT_NAME", "of the job")
    assert create_tracker(str(tmp_path)).experiment_name == "of the job"


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text("[tracker:mlflow]\nuri = x\n")
    with pytest.raises(ValueError, match=r"unknown settings.*: uri; there are: experiment_name"):
        create_tracker(str(tmp_path))


def test_importing_the_module_needs_no_mlflow() -> None:
    code = "import sys; import torchx.tracker.mlflow; assert 'mlflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
