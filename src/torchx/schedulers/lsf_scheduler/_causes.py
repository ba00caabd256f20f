"""Rules for LSF's reasons: why jobs wait and why they ended.

The words of waits are those of LSF's library (lsb_pendreason, lsb_suspreason), and
https://www.ibm.com/docs/SSWRJV_10.1.0/lsf_admin/termination_reasons_lsf.html lists how jobs end.
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_LOOK = "bjobs -l"

RULES = (
    # why it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"^memory limit reached|^limit of swap space|(?-i:\bTERM_(MEMLIMIT|SWAP)\b)"
        r"|\bMEMLIMIT was reached",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"^(CPU|run) time limit reached|(?-i:\bTERM_(RUNLIMIT|CPULIMIT)\b)"
        r"|\b(RUNLIMIT|CPULIMIT) was reached",
        "its time limit was reached",
        ("Ask for more time, or choose a queue that gives more: bqueues -l",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"killed after its deadline|run window closed$|(?-i:\bTERM_(DEADLINE|WINDOW)\b)"
        r"|\bDEADLINE was reached",
        "its deadline was over, or the run window of its queue",
        ("bqueues -l",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"^preempted by another job|host had too much load|(?-i:\bTERM_(PREEMPT|LOAD)\b)",
        "it was ended to make room for other work",
        ("Run it again with retries, or in another queue",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"(?-i:\bTERM_(ZOMBIE|RC|RC_RECLAIM|REMOVE_HUNG_JOB)\b)",
        "the host that it ran on was lost",
        ("Run it again with retries; `bhosts` shows the state of hosts",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"its folder is not there on the host|it could not start: can its host"
        r"|(?-i:\bTERM_(CWD_NOTEXIST|PRE_EXEC_FAIL)\b)",
        "it could not start on its host, which may not see its folder",
        ("Give a folder that all hosts share: `-cfg jobdir=...`",),
    ),
    Rule(
        Cause.KILLED,
        r"^ended by an administrator|signal from outside LSF|^limit of (processes|threads) reached"
        r"|(?-i:\bTERM_(ADMIN|FORCE_ADMIN|EXTERNAL_SIGNAL|PROCESSLIMIT|THREADLIMIT)\b)",
        "it was ended from outside, or had too many processes",
        (_LOOK,),
    ),
    # why it waits, whatever the host
    Rule(
        Cause.DEPENDENCY,
        r"dependency condition invalid",
        "a job that it depends on failed, or its dependency is wrong: it can never start",
        ("torchx cancel {app}",),
    ),
    Rule(
        Cause.DEPENDENCY,
        r"job dependency condition not satisfied",
        "it waits for another job",
        (_LOOK,),
    ),
    Rule(
        Cause.BEGIN_TIME,
        r"has a specified start time|job's specified start time",
        "it is to begin later",
        (_LOOK,),
    ),
    Rule(
        Cause.HELD,
        r"(?-i:\b(PSUSP|USUSP)\b)|job was suspended by (the )?(user|LSF admin)",
        "it is held",
        ("bresume 0  # all of your jobs that are held",),
    ),
    Rule(
        Cause.HELD,
        r"(?-i:\bSSUSP\b)",
        "LSF has suspended it: its host has too much load, or its queue no time",
        ("bhosts -l",),
    ),
    Rule(
        Cause.QUOTA,
        r"user has reached the per-user|user has reached (his/her|the user's) job slot limit"
        r"|not enough per-user job slots|user's groups has (reached its job slot limit|not enough)"
        r"|user has not enough job slots|jobs? array has reached its job slot limit"
        r"|job group limit has been reached|limit defined .*has been reached"
        r"|not allowed due to resource limit",
        "a limit of you or your group is used up",
        ("Wait for your other jobs, or see the limits: busers; blimits",),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"queue is inactivated by|before queue's run window is closed|run windows of the queue are"
        r" closed",
        "its queue starts no such jobs now",
        ("bqueues -l", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.RESOURCES,
        r"queue has reached its job slot limit|queue has not enough job slots",
        "the job slots of its queue are in use",
        (*WAIT, "bqueues -l"),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"pre-exec command exited with non-zero|unable to (access job file|set job's environment"
        r"|determine job's home|open job's I/O)|job execution initialization failed",
        "a host could not start it, and it is tried again",
        ("See that all hosts see its folder: `-cfg jobdir=...`", _LOOK),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"unable to determine user account|failed to get user password"
        r"|user has no permission to run the job",
        "you have no account on the hosts that it would run on",
        ("Ask the administrators of the cluster",),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"not enough (hosts|processors) to meet the (job|queue)'s spanning",
        "not enough hosts can take it together, as things are",
        ("bhosts; lshosts", "Ask for less, or for other hosts"),
    ),
    # why it waits, host by host: those that are busy before those that never will do
    Rule(
        Cause.RESOURCES,
        r"(?<!user )job slot limit reached|not enough job slot\(s\)|not enough slots"
        r"|requirements for (resource reservation|reserving resource .*) not satisfied"
        r"|not enough processor units|running an exclusive job"
        r"|requirement for exclusive execution not satisfied|load threshold reached"
        r"|preempted job is waiting|just started a job recently"
        r"|higher or equal priority jobs already suspended",
        "the hosts that it needs are in use",
        WAIT,
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"dispatch windows closed",
        "its queue starts no such jobs now",
        ("bqueues -l", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"resource requirements not satisfied|closed by LSF administrator|host is locked"
        r"|load information unavailable|LIM is unreachable|unable to reach slave batch server"
        r"|not the same type as the submission host|not usable to the queue"
        r"|not specified in job submission|has no access to the host partition"
        r"|job will not finish on the host",
        "no host can take it as things are",
        ("bhosts; lshosts", "Ask for less, or for other hosts"),
    ),
    Rule(
        Cause.STARTING,
        r"(new|requeued|migrating) job is waiting|waiting for (re-?)?scheduling"
        r"|schedule of the job is postponed|system is not ready for scheduling",
        "it is about to be placed",
        WAIT,
    ),
)
"""Of bjobs and bhist."""

REFUSALS = (
    Rule(
        Cause.QUOTA,
        r"pending job threshold reached|does not have enough job slots|reached its job limit"
        r"|violates the job group limit",
        "a limit of you or your group is reached",
        ("Wait for your other jobs, or see the limits: busers; blimits",),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"Queue has been closed|queue windows are closed|Queue (only accepts|does not accept)",
        "its queue takes no such jobs now",
        ("bqueues -l", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"Cannot exceed queue's|Too (many|few) processors requested"
        r"|Queue does not have enough per-|Job array index too large",
        "it asks for more than its queue allows",
        ("bqueues -l", "Ask for less, or choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"User cannot use the queue|User permission denied|Root job submission is disabled"
        r"|User not in the specified user group|not in specified project group",
        "you may not use that queue or group",
        ("bqueues -u $USER",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"No such queue|Queue name must be specified",
        "the queue is not there",
        ("bqueues", "Choose one of these: `-cfg queue=...`"),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"Bad resource requirement|Bad resource name|Bad host (name|specification)"
        r"|No such user/host group|Host or host group is not used by the queue|Unknown user"
        r"|Dependency condition syntax error|Bad (job|user group) name|Bad argument",
        "LSF does not take an option of its request",
        ("torchx runopts lsf",),
    ),
    Rule(
        Cause.UNKNOWN,
        r"Request aborted by esub",
        "a rule of this cluster (esub) refuses the job",
        ("Ask the administrators of the cluster",),
    ),
)
"""Of bsub; the words are those of LSF's library, see lsb_perror."""
