"""Calls of Slurm's programs: how many, what is retried, and what users are told."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import torchx.schedulers.slurm_scheduler as slurm
from torchx.errors import BackendUnavailable, InvalidInput, JobStartError
from torchx.schedulers._core import command
from torchx.schedulers.slurm_scheduler import SlurmScheduler, _client, _submit, create_scheduler
from torchx.schedulers.slurm_scheduler._client import is_transient
from torchx.schedulers.slurm_scheduler._submit import parse_job_id
from torchx.specs import AppDef, AppState, Resource, Role

from . import samples

APP = AppDef("train", [Role("train", "", entrypoint="true", num_replicas=2)])
INVALID = "slurm_load_jobs error: Invalid job id specified\n"
NO_CONTACT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
ACCOUNTING_OFF = "Slurm accounting storage is disabled\n"

# -- submitting ---------------------------------------------------------------------------------


def test_the_job_is_submitted_with_its_token_and_name(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", "1234\n")
    info = scheduler.submit_dryrun(APP, {"comment": "a b"})
    before = str(info)
    assert scheduler.schedule(info) == "1234"
    assert scheduler.schedule(info) == "1234"
    assert str(info) == before
    first, second = fake_slurm.calls("sbatch")
    assert first[:3] == ["sbatch", "--parsable", "--comment=a b"]
    assert first[-2].endswith("/torchx-sbatch.sh")
    assert first[-1].startswith("torchx:")
    assert first[-1].endswith(":train")
    assert first[-1] != second[-1]
    assert not Path(first[-2]).exists()
    assert not Path(".torchxslurmjobdirs").exists()


def test_a_job_dir_keeps_the_script_for_its_owner_only(fake_slurm, scheduler, tmp_path):
    fake_slurm.answer("sbatch", "1234\n")
    job_dir = tmp_path / "a" / "b c"
    for _ in range(2):
        scheduler.submit(APP, {"job_dir": str(job_dir)})
    script = job_dir / "torchx-sbatch.sh"
    assert script.stat().st_mode & 0o777 == 0o600
    (call, _) = fake_slurm.calls("sbatch")
    assert call[2:4] == [f"--chdir={job_dir}", str(script)]
    assert slurm._get_job_dirs() == {"1234": str(job_dir)}


def test_a_relative_job_dir_is_noted_in_full(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", "7\n")
    scheduler.submit(APP, {"job_dir": "rel"})
    assert slurm._get_job_dirs() == {"7": os.path.abspath("rel")}


def test_a_job_dir_that_cannot_be_made_is_said_so(fake_slurm, scheduler):
    Path("file").write_text("")
    with pytest.raises(InvalidInput, match="job_dir"):
        scheduler.submit(APP, {"job_dir": "file/sub"})


def test_the_file_of_job_dirs_may_have_other_lines():
    Path(slurm.SLURM_JOB_DIRS).write_text("1 = /a=b \nnonsense\n = /x\n2=\n1 = /later\n3 = /c\n")
    assert slurm._get_job_dirs() == {"1": "/later", "3": "/c"}
    slurm._save_job_dir("4", "/d")
    assert slurm._get_job_dirs()["4"] == "/d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12\n", ("12", "")), ("12;blue\n", ("12", "blue")), ("a notice\n12\n", ("12", ""))],
)
def test_ids_that_sbatch_prints(text, expected):
    assert parse_job_id(text) == expected


def test_a_federated_job_is_asked_for_on_its_cluster(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", "12;blue\n")
    fake_slurm.answer("squeue", samples.squeue(samples.job_21_08(12, "train-0", "RUNNING")))
    fake_slurm.answer("scancel")
    assert scheduler.submit(APP, {}) == "12"
    assert scheduler.describe("12").state is AppState.RUNNING
    scheduler.cancel("12")
    assert "--clusters=blue" in fake_slurm.calls("squeue")[0]
    assert fake_slurm.calls("scancel") == [["scancel", "--clusters=blue", "12"]]


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        "sbatch: error: Invalid --time specification\n",
        "sbatch: unrecognized option '--nonsense'\n",
    ],
)
def test_a_refusal_is_one_line_in_the_words_of_slurm(fake_slurm, scheduler, words):
    fake_slurm.answer("sbatch", err=words, code=1)
    with pytest.raises(JobStartError) as caught:
        scheduler.submit(APP, {})
    text = str(caught.value)
    assert "\n" not in text
    assert words.split("error: ")[-1].removeprefix("sbatch: ").strip() in text
    assert fake_slurm.calls() == fake_slurm.calls("sbatch")
    assert len(fake_slurm.calls()) == 1


@pytest.mark.parametrize("method", ["submit", "describe", "cancel"])
def test_a_missing_program_is_one_clear_line(monkeypatch, tmp_path, method):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "conf"))
    scheduler = create_scheduler("t")
    arguments = {"submit": (APP, {}), "describe": ("1",), "cancel": ("1",)}[method]
    program = "sbatch" if method == "submit" else "squeue"
    with pytest.raises(BackendUnavailable, match=f"`{program}` was not found.*login node"):
        getattr(scheduler, method)(*arguments)


SUBMIT_AND_LOSE = """\
#!{python}
# Takes the job, and loses the answer.
import json, os, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open({calls!r}, "a") as f:
    f.write("sbatch\\n")
job = {{"job_id": 55, "name": "train-0", "job_state": "PENDING"}}
job["command"] = " ".join(sys.argv[-2:])
with open(os.path.join(here, "squeue.out"), "w") as f:
    json.dump({{"jobs": [job]}}, f)
sys.stderr.write({words!r})
sys.exit(1)
"""


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: Batch job submission failed: Socket timed out\n",
        "sbatch: error: Batch job submission failed: Unexpected missing socket error\n",
        "sbatch: error: words that nobody has seen yet\n",
        "",
        "Killed\n",
    ],
)
def test_a_lost_answer_is_recovered_by_the_token(fake_slurm, scheduler, words):
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.program("sbatch", SUBMIT_AND_LOSE.replace("{words!r}", repr(words)))
    assert scheduler.submit(APP, {}) == "55"
    assert len(fake_slurm.calls("sbatch")) == 1


def test_a_submission_is_tried_again_only_if_it_did_not_arrive(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("sbatch", "8\n")
    unreachable = "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n"
    fake_slurm.answer("sbatch", err=unreachable, code=1, call=1)
    assert scheduler.submit(APP, {}) == "8"
    first, second = fake_slurm.calls("sbatch")
    assert first[-1] == second[-1]


SUBMIT_LATE = """\
#!{python}
# Loses its answer; squeue tells of the job some seconds later.
import json, os, subprocess, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open({calls!r}, "a") as f:
    f.write("sbatch\\n")
job = {{"job_id": 55, "name": "train-0", "job_state": "PENDING"}}
job["command"] = " ".join(sys.argv[-2:])
text = json.dumps({{"jobs": [job]}})
later = "import sys, time; time.sleep(5); open(sys.argv[1], 'w').write(sys.argv[2])"
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen([sys.executable, "-c", later, os.path.join(here, "squeue.out"), text], **quiet)
sys.stderr.write("sbatch: error: Batch job submission failed: Socket timed out\\n")
sys.exit(1)
"""


def test_a_job_that_appears_late_is_recovered(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.program("sbatch", SUBMIT_LATE)
    assert scheduler.submit(APP, {}) == "55"
    assert len(fake_slurm.calls("sbatch")) == 1


def test_words_that_nobody_knows_are_a_refusal_once_there_is_no_job(
    fake_slurm, scheduler, monkeypatch
):
    monkeypatch.setattr(_submit, "UNKNOWN_WORDS_S", 1.0)
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("sbatch", err="sbatch: error: words that nobody has seen yet\n", code=1)
    with pytest.raises(JobStartError, match="refused the job: words that nobody has seen yet"):
        scheduler.submit(APP, {})
    assert len(fake_slurm.calls("sbatch")) == 1
    assert fake_slurm.calls("squeue")


def test_a_user_is_told_what_is_being_waited_for(fake_slurm, scheduler, monkeypatch, caplog):
    monkeypatch.setattr(command, "SILENT_S", 0.2)
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.program("sbatch", "#!/bin/sh\nsleep 1\necho 8\n")
    assert scheduler.submit(APP, {}) == "8"
    assert "waiting for `sbatch` to answer" in caplog.messages
    fake_slurm.program("sinfo", "#!/bin/sh\nsleep 1\n")
    needs_memory = Role("r", "", entrypoint="true", resource=Resource(1, 0, 64))
    scheduler.submit_dryrun(AppDef("a", [needs_memory]), {})
    assert "waiting for `sinfo` to answer" in caplog.messages
    unreachable = "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n"
    fake_slurm.answer("squeue", err=NO_CONTACT, code=1)
    program = f"#!/bin/sh\nsleep 0.5\necho '{unreachable.strip()}' >&2\nexit 1\n"
    fake_slurm.program("sbatch", program)
    monkeypatch.setattr(_submit, "RETRY_PAUSES_S", (0.1,))
    with pytest.raises(BackendUnavailable, match="Unable to contact slurm controller"):
        scheduler.submit(APP, {})
    assert len([m for m in caplog.messages if m.endswith("; trying again")]) == 1


def test_a_directory_that_the_job_cannot_write_is_refused_before_it_waits(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", "8\n")
    Path(f".torchx-slurm-{os.getuid()}").write_text("in the way")
    with pytest.raises(InvalidInput, match=r"cannot write its logs .* set the option `job_dir`"):
        scheduler.submit(APP, {})
    assert fake_slurm.calls("sbatch") == []


def test_a_refused_job_is_looked_for_nowhere(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", err="sbatch: error: invalid partition specified: x\n", code=1)
    with pytest.raises(JobStartError, match="invalid partition"):
        scheduler.submit(APP, {})
    assert [call[0] for call in fake_slurm.calls()] == ["sbatch"]


def test_without_a_configuration_nothing_is_submitted_and_nothing_looked_for(fake_slurm, scheduler):
    words = (  # recorded from 22.05 where there is no slurm.conf
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "sbatch: error: fetch_config: DNS SRV lookup failed\n"
        "sbatch: error: _establish_config_source: failed to fetch config\n"
        "sbatch: fatal: Could not establish a configuration source\n"
    )
    fake_slurm.answer("sbatch", err=words, code=1)
    with pytest.raises(BackendUnavailable, match=r"nothing was submitted: .* SLURM_CONF"):
        scheduler.submit(APP, {})
    assert [call[0] for call in fake_slurm.calls()] == ["sbatch"]


def test_a_submission_that_may_have_arrived_is_not_repeated(fake_slurm, scheduler, monkeypatch):
    monkeypatch.setattr(_submit, "LATE_JOB_S", 2.0)
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("sbatch", err="sbatch: error: Socket timed out\n", code=1)
    with pytest.raises(BackendUnavailable, match="Socket timed out") as caught:
        scheduler.submit(APP, {})
    assert fake_slurm.calls("sbatch")[0][-1].rpartition(":")[0] in str(caught.value)
    assert len(fake_slurm.calls("sbatch")) == 1


# -- looking ------------------------------------------------------------------------------------


def test_a_job_is_known_at_once_though_slurm_is_slow_to_tell(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("sbatch", "9\n")
    app_id = scheduler.submit(APP, {})
    found = scheduler.describe(app_id)
    assert found.state is AppState.PENDING
    assert [(r.name, r.num_replicas) for r in found.roles] == [("train", 2)]


def test_an_unknown_job_is_none_and_is_asked_for_in_both_places(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue(samples.job_21_08(1, "x-0", "RUNNING")))
    fake_slurm.answer("sacct", samples.SACCT_HEADER)
    assert scheduler.describe("12") is None
    assert not scheduler.exists("12")
    assert fake_slurm.calls("sacct")


@pytest.mark.parametrize("app_id", ["", "abc", "12_3", "-1", "12 13", "$(id)", "\uff11"])
def test_what_is_no_job_id_is_asked_for_nowhere(fake_slurm, scheduler, app_id):
    assert scheduler.describe(app_id) is None
    scheduler.cancel(app_id)
    assert fake_slurm.calls() == []


@pytest.mark.parametrize("version", [*samples.VERSIONS])
def test_jobs_of_each_version_are_described(fake_slurm, scheduler, version):
    make = samples.VERSIONS[version]
    fake_slurm.answer("squeue", samples.squeue(*samples.het(make, 12, "RUNNING", "PENDING")))
    found = scheduler.describe("12")
    assert found.state is AppState.RUNNING
    assert [r.role for r in found.roles_statuses] == ["a", "b"]
    assert scheduler._describe_squeue("12").state is AppState.RUNNING


@pytest.mark.parametrize(
    "words", ["squeue: unrecognized option '--json'\n", "error: serializer plugin not found\n"]
)
def test_text_is_read_where_there_is_no_json(fake_slurm, scheduler, words):
    fake_slurm.answer("squeue", err=words, code=1, call=1)
    line = ["12", "RUNNING", "None", "me", "n1", "/w", "/w/s.sh torchx:t:train", "train-0"]
    fake_slurm.answer("squeue", "\x1f".join(line) + "\n")
    assert scheduler.describe("12").state is AppState.RUNNING
    assert any(a.startswith("--format=") for a in fake_slurm.calls("squeue")[1])


def test_a_job_that_the_controller_forgot_is_in_accounting(fake_slurm, scheduler):
    fake_slurm.answer("squeue", err=INVALID, code=1)
    fake_slurm.answer("sacct", samples.SACCT_HET)
    for _ in range(3):
        found = scheduler.describe("12")
    assert found.state is AppState.FAILED
    assert found.num_restarts == -1
    assert len(fake_slurm.calls("sacct")) == 1, "what has ended does not change"
    assert scheduler._describe_sacct("12").state is AppState.FAILED


def test_fields_that_sacct_does_not_know_are_left_out(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("sacct", err='sacct: fatal: Invalid field requested: "SubmitLine"', code=1)
    fake_slurm.answer("sacct", samples.SACCT_DEFAULT_FIELDS, call=2)
    assert scheduler.describe("1853").state is AppState.CANCELLED


@pytest.mark.parametrize("present", [True, False])
def test_without_accounting_the_notes_of_a_job_tell_its_end(
    fake_slurm, scheduler, present, monkeypatch
):
    fake_slurm.answer("sbatch", "9\n")
    app_id = scheduler.submit(APP, {})
    token = fake_slurm.calls("sbatch")[0][-1].split(":")[1]
    notes = Path(f".torchx-slurm-{os.getuid()}") / f"9-{token}"
    notes.mkdir(parents=True)
    fake_slurm.answer("squeue", err=INVALID, code=1)
    if present:
        fake_slurm.answer("sacct", err=ACCOUNTING_OFF, code=1)
    else:
        monkeypatch.setenv("PATH", str(fake_slurm.folder))
    later = create_scheduler("later")
    assert later.describe(app_id) is None
    for name in ("exit-0-0-0-0", "exit-0-0-1-4", "end-0-4", "hosts-0-0"):
        (notes / name).write_text("n1\nn2\n" if name.startswith("hosts") else "")
    found = later.describe(app_id)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 0)
    states = [r.state for r in found.roles_statuses[0].replicas]
    assert states == [AppState.SUCCEEDED, AppState.FAILED]
    assert [r.hostname for r in found.roles_statuses[0].replicas] == ["n1", "n2"]
    (failed,) = later.failed_replicas(app_id)
    assert (failed.replica, failed.exit_code) == (1, 4)


def test_transient_faults_are_retried(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue(samples.job_21_08(12, "a-0", "RUNNING")))
    for call, words in enumerate([NO_CONTACT, "slurm_load_jobs error: Socket timed out\n"], 1):
        fake_slurm.answer("squeue", err=words, code=1, call=call)
    assert scheduler.describe("12").state is AppState.RUNNING
    assert len(fake_slurm.calls("squeue")) == 3


TIMED = """\
#!{python}
# Notes when it is called, and cannot reach the controller three times.
import time
with open({calls!r}, "a") as f:
    f.write(f"squeue\\x1e{{time.time()}}\\n")
with open({calls!r}) as f:
    n = sum(1 for _ in f)
if n <= 3:
    raise SystemExit("slurm_load_jobs error: Unable to contact slurm controller")
print('{{"jobs": [{{"job_id": 12, "name": "a-0", "job_state": "RUNNING"}}]}}')
"""


def test_retries_and_what_follows_them_are_a_second_apart(fake_slurm, scheduler):
    fake_slurm.program("squeue", TIMED)
    assert scheduler.describe("12").state is AppState.RUNNING
    _client.queue().jobs(newer_than=time.monotonic())
    times = [float(call[1]) for call in fake_slurm.calls("squeue")]
    assert len(times) == 5
    gaps_s = [after - before for before, after in itertools.pairwise(times)]
    assert min(gaps_s) > 0.5  # programs take different times to start, on a busy machine above all


def test_an_outage_is_told_and_its_end_noticed_by_the_next_call(fake_slurm, scheduler):
    running = samples.squeue(samples.job_21_08(12, "a-0", "RUNNING"))
    fake_slurm.answer("squeue", running)
    assert scheduler.describe("12").state is AppState.RUNNING
    fake_slurm.answer("squeue", err=NO_CONTACT, code=1)
    deadline = time.monotonic() + 30
    while not fails(scheduler):
        assert time.monotonic() < deadline
    assert fails(scheduler)
    fake_slurm.answer("squeue", running)
    assert scheduler.describe("12").state is AppState.RUNNING


def fails(scheduler: SlurmScheduler) -> bool:
    try:
        scheduler.describe("12")
    except BackendUnavailable as err:
        assert "Unable to contact slurm controller" in str(err)  # noqa: PT017 - it need not be raised
        return True
    return False


def test_errors_that_are_told_with_exit_code_0_are_errors(fake_slurm, scheduler):
    """22.05 with JSON, of a controller that it cannot reach."""
    fake_slurm.answer("squeue", samples.recorded("squeue-away.json"))
    fake_slurm.answer("squeue", samples.recorded("squeue-away.json"), call=1)
    running = samples.squeue(samples.job_21_08(12, "a-0", "RUNNING"))
    fake_slurm.answer("squeue", running, call=2)
    assert scheduler.describe("12").state is AppState.RUNNING
    with pytest.raises(BackendUnavailable, match="Failed while looking for jobs"):
        _client.queue().jobs(newer_than=time.monotonic())


SLOW_FAILURE = """\
#!{python}
# Takes a second to notice that the controller is away, as long as there is the file `away`.
import os, sys, time
here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open({calls!r}, "a") as f:
    f.write(f"squeue\\x1e{{time.time()}}\\n")
if os.path.exists(os.path.join(here, "away")):
    time.sleep(1)
    raise SystemExit("slurm_load_jobs error: Unable to contact slurm controller")
print('{{"jobs": [{{"job_id": 12, "name": "a-0", "job_state": "RUNNING"}}]}}')
"""


def test_a_failed_call_is_no_load_that_calls_for_a_longer_pause(fake_slurm, scheduler):
    fake_slurm.program("squeue", SLOW_FAILURE)
    queue = _client.queue()
    queue.jobs()
    away = fake_slurm.folder / "away"
    away.touch()
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            queue.jobs(newer_than=time.monotonic())
    away.unlink()
    assert scheduler.describe("12").state is AppState.RUNNING
    times = [float(call[1]) for call in fake_slurm.calls("squeue")]
    gaps_s = [after - before for before, after in itertools.pairwise(times)]
    # `MAX_FAULT_INTERVAL_S` at most; a call that took so long would count for `LOAD_FACTOR` seconds
    assert max(gaps_s) < _client.LOAD_FACTOR


def test_another_failure_is_told_in_the_words_of_slurm(fake_slurm, scheduler):
    fake_slurm.answer("squeue", err="squeue: error: Access denied\n", code=1)
    with pytest.raises(BackendUnavailable, match="`squeue` failed: Access denied"):
        scheduler.describe("12")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NO_CONTACT, True),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", True),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", True),
        ("sacct: error: slurm_persist_conn_open: failed: Connection refused", True),
        (INVALID, False),
        (ACCOUNTING_OFF, False),
        ("Invalid partition name specified", False),
    ],
)
def test_which_words_mean_that_a_call_may_succeed_later(text, expected):
    assert is_transient(text) is expected


def test_watching_many_jobs_is_at_most_one_call_a_second(fake_slurm):
    jobs = [samples.job_21_08(i, "a-0", "RUNNING") for i in range(100, 200)]
    fake_slurm.answer("squeue", samples.squeue(*jobs))
    schedulers = [create_scheduler(str(i)) for i in range(4)]
    started = time.monotonic()

    deadline = started + 120

    def watch(scheduler: SlurmScheduler) -> None:
        # a busy machine makes squeue slow, and it is then called less often
        while len(fake_slurm.calls("squeue")) < 3:
            assert time.monotonic() < deadline
            for i in range(100, 200):
                assert scheduler.describe(str(i)).state is AppState.RUNNING

    with ThreadPoolExecutor(4) as pool:
        watches = [pool.submit(watch, scheduler) for scheduler in schedulers]
    for watched in watches:
        watched.result()
    took = time.monotonic() - started
    assert 3 <= len(fake_slurm.calls("squeue")) <= took + 1
    assert fake_slurm.calls("sacct") == []


# -- cancelling and listing ---------------------------------------------------------------------


def test_cancelling_what_has_ended_is_no_error(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue(samples.job_21_08(12, "a-0", "RUNNING")))
    fake_slurm.answer("scancel", err="scancel: error: Kill job error: Job/step already completed\n",
                      code=1)  # fmt: skip
    scheduler.cancel("12")
    scheduler.delete("12")
    assert len(fake_slurm.calls("scancel")) == 2


def test_a_refused_cancel_is_told(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue(samples.job_21_08(12, "a-0", "RUNNING")))
    words = "scancel: error: Kill job error on job id 12: Access/permission denied\n"
    fake_slurm.answer("scancel", err=words, code=1)
    with pytest.raises(InvalidInput, match="permission denied"):
        scheduler.cancel("12")


def test_an_app_is_listed_by_the_name_it_was_given(fake_slurm, scheduler):
    fake_slurm.answer("sbatch", "7\n")
    scheduler.submit(AppDef("Modèle/1 a%b:c", APP.roles), {})
    mark = fake_slurm.calls("sbatch")[0][-1]
    assert mark.isascii()
    line = f"sbatch --parsable /t/torchx-sbatch.sh {mark}"
    job = samples.job_21_08(7, "train-0", "RUNNING", command=line, user_name="root")
    fake_slurm.answer("squeue", samples.squeue(job))
    fake_slurm.answer("sacct", f"JobID|State|SubmitLine|JobName\n6|COMPLETED|{line}|train-0\n")
    elsewhere = create_scheduler("elsewhere")
    assert [row.name for row in elsewhere._list_sacct()] == ["Modèle/1 a%b:c"]
    assert {row.name for row in elsewhere.list()} == {"Modèle/1 a%b:c"}


def test_the_list_is_one_call_of_each(fake_slurm, scheduler):
    fake_slurm.answer("squeue", samples.squeue())
    line = "sbatch --parsable /t/torchx-sbatch.sh torchx:tok:train"
    fake_slurm.answer(
        "sacct", f"JobID|State|SubmitLine|JobName\n7|RUNNING|{line}|w-0\n8|RUNNING|x|b-0\n"
    )
    rows = scheduler.list()
    assert [(r.app_id, r.name, r.state) for r in rows] == [("7", "train", AppState.RUNNING)]
    call, _ = fake_slurm.calls()
    assert f"--user={os.getuid()}" in call
    assert "--starttime=now-14days" in call


@pytest.mark.parametrize("missing", [True, False])
def test_the_list_without_accounting_is_that_of_squeue(fake_slurm, scheduler, missing, monkeypatch):
    import pwd

    me = pwd.getpwuid(os.getuid()).pw_name
    make = samples.job_24_11
    fake_slurm.answer(
        "squeue",
        samples.squeue(
            make(12, "train-0", "RUNNING", user_name=me),
            make(13, "train-0", "RUNNING", user_name="other"),
            make(14, "bash-0", "RUNNING", user_name=me, command="bash"),
            *[{**job, "user_name": me} for job in samples.het(make, 20, "RUNNING", "FAILED")],
        ),
    )
    if missing:
        monkeypatch.setenv("PATH", str(fake_slurm.folder))
    else:
        fake_slurm.answer("sacct", err=ACCOUNTING_OFF, code=1)
    assert sorted((r.app_id, r.state) for r in scheduler.list()) == [
        ("12", AppState.RUNNING),
        ("20", AppState.RUNNING),  # a component has failed, the other one is still there
    ]
    assert scheduler._list_sacct() is None


# -- what clients patch -------------------------------------------------------------------------


def test_programs_are_called_through_subprocess_as_clients_patch_it(monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path))
    commands = []

    def check_output(command, **_):
        commands.append(command)
        return samples.squeue(samples.job_21_08(12, "a-0", "RUNNING"))

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=b"99\n")

    monkeypatch.setattr(slurm.subprocess, "check_output", check_output)
    monkeypatch.setattr(slurm.subprocess, "run", run)
    scheduler = create_scheduler("t")
    assert scheduler.submit(APP, {}) == "99"
    assert scheduler.describe("12").state is AppState.RUNNING
    scheduler.cancel("12")
    assert [c[0] for c in commands] == ["sbatch", "squeue", "scancel"]


def test_a_request_is_plain_data(scheduler):
    import dataclasses

    info = scheduler.submit_dryrun(APP, {})
    assert json.dumps(dataclasses.asdict(info.request))


# -- several at once ----------------------------------------------------------------------------

KEEP_SCRIPT = """\
#!{python}
# Reads the script some time after it was started, and keeps what it read by the name of the app.
import os, sys, time
time.sleep(0.2)
here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open(sys.argv[-2]) as f:
    text = f.read()
with open(os.path.join(here, "script-" + sys.argv[-1].rpartition(":")[2]), "w") as f:
    f.write(text)
print(os.getpid())
"""


def test_two_submissions_into_one_directory_do_not_mix_their_scripts(fake_slurm, tmp_path):
    fake_slurm.program("sbatch", KEEP_SCRIPT)

    def submit(name: str) -> None:
        app = AppDef(name, [Role("r", "", entrypoint=f"run-{name}")])
        create_scheduler("t").submit(app, {"job_dir": str(tmp_path / "job")})

    names = [f"app{i}" for i in range(4)]
    threads = [threading.Thread(target=submit, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        assert f"set -- run-{name}\n" in (fake_slurm.folder / f"script-{name}").read_text()
    assert len(slurm._get_job_dirs()) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_submission_leaves_no_job_and_says_so(fake_slurm, number):
    """Ctrl-C while sbatch waits for its answer, and the job is there."""
    words = "import time; time.sleep(60)"
    program = SUBMIT_AND_LOSE.replace("sys.stderr.write({words!r})", words)
    fake_slurm.program("sbatch", program)
    fake_slurm.answer("squeue", samples.squeue())
    fake_slurm.answer("scancel")
    code = (
        "from torchx.schedulers.slurm_scheduler import create_scheduler\n"
        "from torchx.specs import AppDef, Role\n"
        "create_scheduler('t').submit(AppDef('a', [Role('r', '', entrypoint='true')]), {})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while "55" not in (fake_slurm.folder / "squeue.out").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: -2, signal.SIGTERM: 143}[number]
    assert "interrupted while job `55` was submitted: it is cancelled" in told
    assert fake_slurm.calls("scancel") == [["scancel", "55"]]


def test_the_command_line_shows_no_secret_in_a_dry_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    secret = "hf_it's $HOME secret"
    command = [sys.executable, "-m", "torchx.cli.main", "run", "--dryrun", "-s", "slurm"]
    job = ["utils.sh", "--env", f"HF_TOKEN={secret.replace('$', '$$')}", "true"]
    done = subprocess.run([*command, *job], capture_output=True, text=True, check=True)
    assert "export HF_TOKEN=" in done.stdout
    assert "secret" not in done.stdout + done.stderr
