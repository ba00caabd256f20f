"""What Ax relies on beyond names."""

import inspect
import os
import sys

import pytest

from torchx import specs
from torchx.components import utils
from torchx.runner import get_runner
from torchx.specs import AppState
from torchx.version import TORCHX_IMAGE


def test_there_are_eight_states():
    assert [state.name for state in AppState] == [
        "UNSUBMITTED",
        "SUBMITTED",
        "PENDING",
        "RUNNING",
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
        "UNKNOWN",
    ]


def test_components_are_called_by_the_names_of_their_parameters():
    arguments = inspect.getfullargspec(utils.booth)
    assert arguments.args == ["x1", "x2", "trial_idx", "tracker_base", "image"]
    assert arguments.annotations["trial_idx"] is int
    app = utils.booth(x1=1.0, x2=2.0, trial_idx=3, tracker_base="/tmp/base")
    assert "3" in app.roles[0].args
    app = utils.python("--x", "1", m="some.module", name="eval", image=TORCHX_IMAGE)
    assert (app.name, app.roles[0].image) == ("eval", TORCHX_IMAGE)


def test_more_trials_than_the_cache_takes_can_all_be_asked_for():
    with get_runner() as runner:
        cfg = {"prepend_cwd": True}
        app = specs.AppDef(
            "trial", [specs.Role("r", "", entrypoint="true", resource=specs.Resource(1, 0, 1))]
        )
        handles = [runner.run(app, "local_cwd", cfg) for _ in range(105)]
        for handle in handles:
            status = runner.wait(handle, wait_interval=0.1)
            assert status is not None
            assert status.state is AppState.SUCCEEDED
        assert all(runner.status(handle) is not None for handle in handles)


def test_a_trial_writes_its_result_where_the_experiment_reads_it(tmp_path, monkeypatch):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    tracking = pytest.importorskip("torchx.runtime.tracking")
    base = str(tmp_path / "results")
    # the job runs the first `python` of the path
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    with get_runner() as runner:
        app = utils.booth(x1=1.0, x2=3.0, trial_idx=7, tracker_base=base)
        handle = runner.run(app, "local_cwd", {"log_dir": str(tmp_path / "logs")})
        assert runner.wait(handle, wait_interval=0.1).state is AppState.SUCCEEDED
    tracker = tracking.FsspecResultTracker(base)
    assert tracker[7]["booth_eval"] == tracker["7"]["booth_eval"] == pytest.approx(0.0)
