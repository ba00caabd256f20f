"""What LSF's programs print, in the shapes that are documented of 9.1 and 10.1."""

from pathlib import Path

import pytest

from torchx.errors import UnexpectedReply
from torchx.schedulers.lsf_scheduler import _parse
from torchx.schedulers.lsf_scheduler._states import Row
from torchx.specs import AppState

RECORDED = Path(__file__).with_name("recorded")
SHAPES = ("9.1 text", "10.1 text", "10.1 json")


def rows_of(shape: str, name: str) -> list[Row]:
    version, form = shape.split()
    suffix = "json" if form == "json" else "txt"
    text = (RECORDED / version / f"{name}.{suffix}").read_text()
    if form == "json":
        return _parse.parse_json(text)
    return _parse.parse_text(text, _parse.OLD_FIELDS if version == "9.1" else _parse.FIELDS)


def found(rows: list[Row]) -> dict[str, tuple[AppState, int | None, str]]:
    return {f"{row.name}/{row.index}": (row.state, row.exit_code, row.reason) for row in rows}


def test_text_of_9_1():
    rows = rows_of("9.1 text", "bjobs")
    assert found(rows) == {
        "train-x1.0.worker/1": (AppState.SUCCEEDED, None, ""),
        "train-x1.0.worker/2": (AppState.FAILED, 3, ""),
        "train-x1.0.worker/3": (AppState.CANCELLED, 130, ""),
        "train-x1.1.reader/1": (AppState.RUNNING, None, ""),
        "train-x1.1.reader/2": (AppState.PENDING, None, ""),
        "solo-x2.gang/0": (AppState.RUNNING, None, ""),
    }
    assert [row.host for row in rows] == ["node01", "node02", "node02", "node03", "", "node01"]
    assert rows[-1].folder == "/gpfs/a ^ b/solo-x2"


def test_text_of_10_1():
    rows = rows_of("10.1 text", "bjobs")
    assert found(rows) == {
        "train-x1.0.worker/1": (AppState.SUCCEEDED, None, ""),
        "train-x1.0.worker/2": (AppState.FAILED, 137, "memory limit reached"),
        "train-x1.0.worker/3": (AppState.CANCELLED, 143, "ended by its owner"),
        "train-x1.1.reader/2": (AppState.PENDING, None, ""),
    }
    reason = "Not enough GPUs: 2 hosts; Closed by LSF administrator: 1 host;"
    assert rows[-1].pend_reason == reason


def test_json_of_10_1():
    rows = rows_of("10.1 json", "bjobs")
    assert found(rows) == {
        "train-x1.0.worker/1": (AppState.SUCCEEDED, None, ""),
        "train-x1.0.worker/2": (AppState.FAILED, 137, "memory limit reached"),
        "train-x1.1.reader/2": (AppState.PENDING, None, ""),
        "solo-x2.gang/0": (AppState.RUNNING, None, ""),
    }
    assert {row.folder for row in rows} == {"/gpfs/jobs/train-x1", "/gpfs/a ^ b/solo-x2"}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_state_that_we_do_not_know_is_unknown(shape):
    (row,) = rows_of(shape, "unknown-state")
    assert row.state is AppState.UNKNOWN
    assert row.folder == "/gpfs/jobs/train-x1"


@pytest.mark.parametrize("shape", SHAPES)
def test_fields_may_be_missing(shape):
    (row,) = rows_of(shape, "field-missing")
    assert (row.job_id, row.index, row.state) == ("2101", 2, AppState.RUNNING)
    assert (row.host, row.folder, row.reason, row.exit_code) == ("", "", "", None)


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"JOBS": 0}', '{"RECORDS": [1]}'])
def test_an_answer_of_another_shape_is_an_error(text):
    with pytest.raises(UnexpectedReply):
        _parse.parse_json(text)


def test_no_jobs_are_no_rows():
    assert _parse.parse_json('{"COMMAND":"bjobs","JOBS":0,"RECORDS":[]}') == []
    assert _parse.parse_json("") == []
    assert _parse.parse_text("", _parse.FIELDS) == []


def test_the_history_tells_states_folder_and_reasons():
    rows = _parse.parse_bhist((RECORDED / "10.1/bhist.txt").read_text())
    assert found(rows) == {
        "train-x1.0.worker/1": (AppState.SUCCEEDED, 0, ""),
        "train-x1.0.worker/2": (AppState.FAILED, 3, ""),
        "train-x1.0.worker/3": (AppState.FAILED, 137, "run time limit reached"),
    }
    assert {row.folder for row in rows} == {"/gpfs/jobs/train-x1"}
    assert rows[0].host == "node01"


@pytest.mark.parametrize(
    ("printed", "job_id"),
    [
        ("Job <7> is submitted to queue <gpu>.\n", "7"),
        ("Warning: x\nJob <8> is submitted to default queue <normal>.\n", "8"),
    ],
)
def test_the_id_of_a_submitted_job(printed, job_id):
    assert _parse.parse_submitted(printed) == job_id


def test_without_an_id_the_answer_is_an_error():
    with pytest.raises(UnexpectedReply, match="bsub"):
        _parse.parse_submitted("done")


def test_rows_are_grouped_by_app():
    rows = rows_of("9.1 text", "bjobs")
    apps = _parse.by_app(rows)
    assert {app: len(found) for app, found in apps.items()} == {"train-x1": 5, "solo-x2": 1}


@pytest.mark.parametrize(
    "said",
    [
        "Job <7>: Job has already finished\nJob <8> is being terminated\n",
        "Job <7[1]>: Job has already finished\nJob <8>: Operation is in progress\n",
        "Job <7>: No matching job found",
    ],
)
def test_there_may_be_nothing_left_to_end(said):
    assert _parse.is_over(said)


@pytest.mark.parametrize(
    "said", ["", "Job <7>: Job has already finished\nJob <8>: User permission denied\n"]
)
def test_a_job_that_may_not_be_ended_is_not_hidden_by_one_that_is_over(said):
    assert not _parse.is_over(said)
