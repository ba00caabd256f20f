"""What LSF's reasons mean, why jobs wait and why they ended.

https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=execution-about-job-states and
https://www.ibm.com/docs/SSWRJV_10.1.0/lsf_admin/termination_reasons_lsf.html
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_LOOK = "bjobs -l"

RULES = (
    # why it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"memory limit reached|limit of swap space|TERM_(MEMLIMIT|SWAP)",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"(CPU|run) time limit reached|after its deadline|run window closed"
        r"|TERM_(RUNLIMIT|CPULIMIT|DEADLINE|WINDOW)",
        "its time limit was reached",
        ("Ask for more time, or choose a queue that gives more: bqueues -l",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"preempted by another job|too much load|TERM_(PREEMPT|LOAD)",
        "it was ended to make room for other work",
        ("Run it again with retries, or in another queue",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"TERM_(ZOMBIE|RC\b|REMOVE_HUNG_JOB)|unable to reach the execution host",
        "the host that it ran on was lost",
        ("Run it again with retries; `bhosts` shows the state of hosts",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"its folder is not there on the host|it could not start: can its host|TERM_CWD_NOTEXIST"
        r"|TERM_PRE_EXEC_FAIL",
        "it could not start on its host, which does not see its folder",
        ("Give a folder that all hosts share: `-cfg jobdir=...`",),
    ),
    Rule(
        Cause.KILLED,
        r"ended by an administrator|signal from outside LSF|limit of (processes|threads) reached",
        "it was ended from outside",
        (_LOOK,),
    ),
    # why it waits
    Rule(
        Cause.DEPENDENCY,
        r"dependency condition (invalid|never)",
        "a job that it depends on failed, so it can never start",
        ("torchx cancel {app}",),
    ),
    Rule(Cause.DEPENDENCY, r"dependency condition", "it waits for another job", (_LOOK,)),
    Rule(
        Cause.BEGIN_TIME,
        r"specified start time|start time .*not (yet )?reached|has not reached its start time",
        "it is to begin later",
        (_LOOK,),
    ),
    Rule(
        Cause.HELD,
        r"\bPSUSP\b|\bUSUSP\b|held by|suspended by (its |the )?(user|owner|LSF|admin)",
        "it is held",
        ("bresume 0  # all of your jobs that are held",),
    ),
    Rule(
        Cause.HELD, r"\bSSUSP\b", "LSF has suspended it: its host has too much load", ("bhosts -l",)
    ),
    Rule(
        Cause.QUOTA,
        r"(per-)?user.* (job )?(slot|resource) limit|user('s)? .*limit|user group.*limit"
        r"|reached (his/her|the) .*limit|fairshare|limit .*has been reached"
        r"|license .*not available",
        "a limit of you or your group is used up",
        ("Wait for your other jobs, or see the limits: busers; blimits",),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"queue.* (closed|inactive|inactivated|dispatch window|run window|not (accept|open))"
        r"|(closed|inactive) (the )?queue|dispatch windows? .*closed|queue.*limit",
        "its queue starts no such jobs now",
        ("bqueues -l", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"resource requirements? (not satisfied|cannot be)|not enough hosts|spanning requirement"
        r"|does not have enough (slots|hosts|processors)|not specified in job submission"
        r"|no (host|candidate)|hosts? .*(unavailable|unreachable|closed)",
        "no host can take it as things are",
        ("bhosts; lshosts", "Ask for less, or for other hosts"),
    ),
    Rule(
        Cause.RESOURCES,
        r"job slot limit reached|slots? .*(in use|reserved)|load .*threshold"
        r"|not enough (slots|processors|resources|job slots)|resource .*(reserved|is used)"
        r"|not enough (job )?slot",
        "the hosts that it needs are in use",
        WAIT,
    ),
    Rule(
        Cause.STARTING,
        r"(new|requeued|migrating) job is waiting|waiting for (re)?scheduling|scheduling .*delayed"
        r"|pre-?exec",
        "it is about to be placed",
        WAIT,
    ),
)

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
