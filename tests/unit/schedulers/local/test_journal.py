"""The end of a job that its supervisor could not write."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers.local_scheduler._supervise import journal
from torchx.schedulers.local_scheduler._supervise.format import event


def complete(home: Path, *lines: str) -> tuple[list[list[Any]], str]:
    """Completes a journal; gives its events and the state in the index."""
    (home / "active").mkdir()
    (home / "active/job-1").touch()
    (home / "journal").write_text("".join(lines))
    spec = {
        "job_dir": str(home),
        "home": str(home),
        "app_id": "job-1",
        "session": "s",
        "name": "job",
        "created_ns": 1,
    }
    journal.complete(spec, "its supervisor was killed")
    text = (home / "journal").read_text()
    events = [json.loads(line) for line in text.split("\n") if line.endswith("]")]
    assert not (home / "active/job-1").exists()
    return events, (home / "index").read_text().split("\t")[2]


def test_a_job_without_an_end_has_failed(tmp_path: Path) -> None:
    events, listed = complete(tmp_path, event("state", 1, "RUNNING", ""))
    assert events[-1][2:] == ["FAILED", "its supervisor was killed"]
    assert listed == "FAILED"


def test_a_job_that_was_cancelled_before_is_cancelled(tmp_path: Path) -> None:
    events, listed = complete(tmp_path, event("ending", 1, "CANCELLED", ""))
    assert events[-1][2] == listed == "CANCELLED"


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_an_end_that_was_written_stays(tmp_path: Path, state: str) -> None:
    events, listed = complete(tmp_path, event("state", 5, state, "a, b"))
    assert events == [["state", 5, state, "a, b"]]
    assert listed == state


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    whole = event("state", 5, "SUCCEEDED", "")
    for size in range(len(whole)):
        folder = tmp_path / str(size)
        folder.mkdir()
        events, listed = complete(folder, whole[:size])
        assert events[0][2] == listed  # the first end that can be read counts
        assert listed == ("FAILED" if size < len(whole) - 1 else "SUCCEEDED")
