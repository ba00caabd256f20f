"""The cause of a wait or a failure on LSF, from its columns."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
from torchx.schedulers.lsf_scheduler._causes import RULES
from torchx.schedulers.lsf_scheduler._job import AppRecord, Notes, RoleNote
from torchx.schedulers.lsf_scheduler._states import AppView, LsfSnapshot, Row, snapshot

ENDS = "https://www.ibm.com/docs/SSWRJV_10.1.0/lsf_admin/termination_reasons_lsf.html"
WAITS = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=jobs-view-pending-reasons"
STATES = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=execution-about-job-states"

CASES = [
    Case("starting", WAITS, ("PEND", "New job is waiting for scheduling;")),
    Case("begin-time", WAITS, ("PEND", "Job's specified start time has not been reached;")),
    Case("dependency", WAITS, ("PEND", "Job dependency condition not satisfied;")),
    Case("dependency", WAITS, ("PEND", "Dependency condition invalid or never satisfied;")),
    Case("quota", WAITS, ("PEND", "User has reached the per-user job slot limit of the queue;")),
    Case("quota", WAITS, ("PEND", "The user has reached his/her job slot limit;")),
    Case("queue-limit", WAITS, ("PEND", "The queue is inactivated by its time windows;")),
    Case("queue-limit", WAITS, ("PEND", "Queue's run windows are closed;")),
    Case("unschedulable", WAITS, ("PEND", "Job requirements for resource: 2 hosts; "
         "Not enough hosts to meet the job's spanning requirement;")),
    Case("unschedulable", WAITS, ("PEND", "Job's resource requirements not satisfied: 3 hosts;")),
    Case("resources", WAITS, ("PEND", "Job slot limit reached: 4 hosts;")),
    Case("resources", WAITS, ("PEND", "Load information: Not enough slots or resources;")),
    Case("held", STATES, ("PSUSP", "")),
    Case("held", STATES, ("USUSP", "")),
    Case("held", STATES, ("SSUSP", "")),
    Case("none", STATES, ("RUN", "")),
    Case("none", STATES, ("DONE", "")),
    Case("out-of-memory", ENDS, ("EXIT", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", 137)),
    Case("out-of-memory", ENDS, ("EXIT", "TERM_SWAP: job killed after reaching LSF swap usage limit", 137)),
    Case("time-limit", ENDS, ("EXIT", "TERM_RUNLIMIT: job killed after reaching LSF run time limit", 140)),
    Case("time-limit", ENDS, ("EXIT", "TERM_CPULIMIT: job killed after reaching LSF CPU usage limit", 152)),
    Case("time-limit", ENDS, ("EXIT", "TERM_DEADLINE: job killed after deadline expires", 143)),
    Case("preempted", ENDS, ("EXIT", "TERM_PREEMPT: job killed after preemption", 143)),
    Case("preempted", ENDS, ("EXIT", "TERM_LOAD: job killed after load exceeds threshold", 143)),
    Case("node-lost", ENDS, ("EXIT", "TERM_ZOMBIE: job exited while LSF is not available", 143)),
    Case("node-lost", ENDS, ("EXIT", "TERM_RC: job killed by LSF when an LSF resource connector"
         " execution host is reclaimed by cloud", 143)),
    Case("launch-failed", ENDS, ("EXIT", "TERM_CWD_NOTEXIST: current working directory is not"
         " accessible or does not exist on the execution host", 2)),
    Case("launch-failed", ENDS, ("EXIT", "TERM_PRE_EXEC_FAIL: job killed after reaching"
         " pre-execution retry limit", 1)),
    Case("killed", ENDS, ("EXIT", "TERM_ADMIN: job killed by root or LSF administrator", 143)),
    Case("cancelled", ENDS, ("EXIT", "TERM_OWNER: job killed by owner", 143)),
    Case("unknown", WAITS, ("PEND", "A reason of tomorrow;")),
]  # fmt: skip
RECORD = AppRecord("train", (RoleNote("worker", "worker", 1),))


def make(native: tuple[str, str] | tuple[str, str, int]) -> LsfSnapshot:
    stat, text, *code = native
    column = "pend_reason" if stat == "PEND" else "exit_reason"
    more = {"exit_code": code[0]} if code else {}
    row = Row("train-x.0.worker", "7", 1, stat, **{column: text}, **more)  # type: ignore[arg-type]  # columns
    return snapshot(
        AppView("train-x", [row], RECORD, Notes(attempts={(0, 0): 0}) if code else Notes(), "/jobs")
    )


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[0]}-{case.cause}")
def test_what_lsf_documents(case: Case) -> None:
    check(case, make, RULES)
