"""The cause of a wait or a failure on LSF, from its columns."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from torchx.schedulers.lsf_scheduler._causes import RULES
from torchx.schedulers.lsf_scheduler._job import AppRecord, Notes, RoleNote
from torchx.schedulers.lsf_scheduler._states import AppView, LsfSnapshot, Row, snapshot

# Its rows up to TERM_OWNER were read there, the later ones in copies of the same list.
ENDS = "https://www.ibm.com/docs/SSWRJV_10.1.0/lsf_admin/termination_reasons_lsf.html"
KEYWORDS = "https://www.ibm.com/support/pages/node/677043"
STATES = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=execution-about-job-states"
ARRAY = "https://www.ibm.com/docs/zh/SSWRJV_10.1.0/lsf_command_ref/bjobs.p.1.html"
LIMITS = (
    "https://public.dhe.ibm.com/software/server/plcomp/plsf/7.0.6/lsf7update6_documentation.tar.zip"
)
API = "https://github.com/IBMSpectrumComputing/lsf-python-api/pull/60"
LIBRARY = "https://github.com/zjma/openlava/blob/2a57f051/lsbatch/lib/lsb.reason.c"
"""Of a fork of LSF, whose library has the same words."""

CASES = [
    Case("starting", LIBRARY, ("PEND", "New job is waiting for scheduling;")),
    Case("starting", LIBRARY, ("PEND", "Requeued job is waiting for rescheduling;")),
    Case("starting", LIBRARY, ("PEND", "Waiting for re-scheduling after switching queue;")),
    Case("begin-time", LIBRARY, ("PEND", "The job has a specified start time;")),
    Case("dependency", LIBRARY, ("PEND", "Job dependency condition not satisfied;")),
    Case("dependency", LIBRARY, ("PEND", "Dependency condition invalid or never satisfied;")),
    Case("quota", LIBRARY, ("PEND", "User has reached the per-user job slot limit of the queue;")),
    Case("quota", LIBRARY, ("PEND", "The user has reached his/her job slot limit;")),
    Case("quota", LIBRARY, ("PEND", "One of the user's groups has reached its job slot limit;")),
    Case("quota", LIMITS, ("PEND", "Resource (mem) limit defined cluster-wide has been reached;")),
    Case("quota", ARRAY, ("PEND", "The job array has reached its job slot limit;")),
    Case("queue-limit", LIBRARY, ("PEND", "The queue is inactivated by its time windows;")),
    Case("queue-limit", LIBRARY, ("PEND", "The queue is inactivated by the administrator;")),
    Case("queue-limit", LIBRARY, ("PEND", "Job will not finish before queue's run window is closed;")),
    Case("resources", LIBRARY, ("PEND", "The queue has reached its job slot limit;")),
    Case("unschedulable", LIBRARY, ("PEND", "Not enough hosts to meet the job's spanning requirement;")),
    Case("unschedulable", LIBRARY, ("PEND", "Job's resource requirements not satisfied: 3 hosts;")),
    Case("unschedulable", API, ("PEND", "Closed by LSF administrator: 1 host; Job's resource requirements not"
         " satisfied: 1 host; Load information unavailable: 1 host; Not the same type as the submission host: 1 host;")),
    Case("resources", LIBRARY, ("PEND", "Job slot limit reached: 4 hosts;")),
    Case("resources", LIBRARY, ("PEND", "Not enough job slot(s): 2 hosts;")),
    Case("resources", LIBRARY, ("PEND", "Job's requirements for resource reservation not satisfied: 4 hosts;")),
    Case("resources", LIBRARY, ("PEND", "Closed by LSF administrator: 1 host; Job slot limit reached: 4 hosts;"
         " Not specified in job submission: 20 hosts;")),
    Case("launch-failed", LIBRARY, ("PEND", "The job's pre-exec command exited with non-zero status;")),
    Case("launch-failed", LIBRARY, ("PEND", "Unable to determine job's home/working directories;")),
    Case("access-denied", LIBRARY, ("PEND", "Unable to determine user account for execution;")),
    Case("held", API, ("PSUSP", "Job was suspended by LSF admin or root while pending;")),
    Case("held", STATES, ("PSUSP", "")),
    Case("held", STATES, ("USUSP", "")),
    Case("held", STATES, ("SSUSP", "")),
    Case("none", STATES, ("RUN", "")),
    Case("none", STATES, ("DONE", "")),
    Case("out-of-memory", KEYWORDS, ("EXIT", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", 137)),
    Case("out-of-memory", ENDS, ("EXIT", "TERM_SWAP: job killed after reaching LSF swap usage limit", 137)),
    Case("time-limit", ENDS, ("EXIT", "TERM_RUNLIMIT: job killed after reaching LSF run time limit", 140)),
    Case("time-limit", ENDS, ("EXIT", "TERM_CPULIMIT: job killed after reaching LSF CPU usage limit", 152)),
    Case("time-limit", ENDS, ("EXIT", "TERM_DEADLINE: job killed after deadline expires", 143)),
    Case("preempted", ENDS, ("EXIT", "TERM_PREEMPT: job killed after preemption", 143)),
    Case("preempted", ENDS, ("EXIT", "TERM_LOAD: job killed after load exceeds threshold", 143)),
    Case("node-lost", ENDS, ("EXIT", "TERM_ZOMBIE: job exited while LSF is not available", 143)),
    Case("launch-failed", ENDS, ("EXIT", "TERM_CWD_NOTEXIST: current working directory is not"
         " accessible or does not exist on the execution host", 2)),
    Case("launch-failed", ENDS, ("EXIT", "TERM_PRE_EXEC_FAIL: job killed after reaching"
         " pre-execution retry limit", 1)),
    Case("killed", ENDS, ("EXIT", "TERM_ADMIN: job killed by root or LSF administrator", 143)),
    Case("killed", ENDS, ("EXIT", "TERM_EXTERNAL_SIGNAL: job killed by a signal external to LSF", 137)),
    Case("cancelled", ENDS, ("EXIT", "TERM_OWNER: job killed by owner", 143)),
    Case("app-error", STATES, ("EXIT", "", 3)),
    Case("killed", STATES, ("EXIT", "", 137)),
    Case("unknown", LIBRARY, ("PEND", "System is unable to schedule the job;")),
    Case("unknown", INVENTED, ("PEND", "A reason of tomorrow;")),
    Case("unknown", INVENTED, ("PEND", "The job in queue `job slot limit reached` of USUSPENSE waits;")),
    Case("unknown", INVENTED, ("PEND", "The dependency resource of host user-limit is fairshare;")),
    Case("killed", INVENTED, ("EXIT", "job named TERM_MEMLIMITER killed", 137)),
]  # fmt: skip
RECORD = AppRecord("train", (RoleNote("worker", "worker", 1),))


def make(native: tuple[str, str] | tuple[str, str, int]) -> LsfSnapshot:
    stat, text, *code = native
    column = "exit_reason" if stat == "EXIT" else "pend_reason"
    more = {"exit_code": code[0]} if code else {}
    row = Row("train-x.0.worker", "7", 1, stat, **{column: text}, **more)  # type: ignore[arg-type]  # columns
    return snapshot(
        AppView("train-x", [row], RECORD, Notes(attempts={(0, 0): 0}) if code else Notes(), "/jobs")
    )


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[0]}-{case.native[1][:40]}")
def test_what_lsf_documents(case: Case) -> None:
    check(case, make, RULES)
