"""Rules for Slurm's reasons and states.

https://slurm.schedmd.com/job_reason_codes.html, https://slurm.schedmd.com/squeue.html
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_LOOK = "scontrol show job {app}"
_LIMITS = "sacctmgr show qos; sacctmgr show assoc user=$USER"


def _code(names: str) -> str:
    """A pattern of reasons, in their own case, where Slurm and our messages put them."""
    return rf"(?-i:(?:^|\(|; )(?:{names})(?=$|[),:;_]| \())"


RULES = (
    # states of jobs that ended
    Rule(
        Cause.OUT_OF_MEMORY,
        _code(r"OUT_OF_ME\w*\+?|OutOfMemory") + r"|Detected \d+ oom[-_]kill event|^out of memory$"
        r"|Some of your processes may have been killed by the cgroup out-of-memory handler",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role, or `-cfg mem=...`",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        _code("TIMEOUT|TimeLimit") + "|DUE TO TIME LIMIT",
        "its time limit was reached",
        ("Ask for more time: `-cfg time=HH:MM:SS`, and save checkpoints",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        _code("DEADLINE|DeadLine"),
        "it could not end before its deadline any more",
        ("Leave out `--deadline`, or ask for less time",),
    ),
    Rule(
        Cause.PREEMPTED,
        _code("PREEMPTED") + "|DUE TO PREEMPTION",
        "a job of higher priority took its nodes",
        ("Run it again with retries, or in a QOS that is not preempted",),
    ),
    Rule(
        Cause.NODE_LOST,
        _code("NODE_FAIL|BOOT_FAIL") + "|DUE TO NODE FAILURE",
        "a node failed while it ran",
        ("Run it again with retries; `sinfo -R` says what is wrong with nodes",),
    ),
    # reasons why it waits; they are words of their own case
    Rule(
        Cause.DEPENDENCY,
        _code(r"DependencyNeverSatisfied"),
        "a job that it depends on failed, so it can never start",
        ("torchx cancel {app}", "Run it again without that dependency"),
    ),
    Rule(Cause.DEPENDENCY, _code(r"Dependency"), "it waits for another job to end", (_LOOK,)),
    Rule(
        Cause.HELD,
        _code(r"JobHeldAdmin"),
        "an administrator holds it",
        ("Ask the administrators of the cluster",),
    ),
    Rule(
        Cause.HELD,
        _code(r"JobHoldMaxRequeue") + r"|requeued[ _]held",
        "it could not be started on its nodes too often, and is held",
        ("sinfo -R", "scontrol release {app}"),
    ),
    Rule(
        Cause.HELD,
        _code(r"(JobHeldUser|REQUEUE_HOLD|SPECIAL_EXIT)"),
        "it is held",
        ("scontrol release {app}",),
    ),
    Rule(Cause.BEGIN_TIME, _code(r"BeginTime"), "it is to begin later", (_LOOK,)),
    Rule(
        Cause.BEGIN_TIME,
        _code(r"Reservation"),
        "it waits for its reservation to begin",
        ("scontrol show reservation",),
    ),
    Rule(
        Cause.QUOTA,
        _code(r"(?P<reason>(Assoc|QOS)Max\w*Per(Job|Node)\w*|MaxMemPerLimit)"),
        "it asks for more than your account or QOS allows one job ({reason})",
        ("Ask for less, or use another account or QOS", _LIMITS),
    ),
    Rule(
        Cause.QUOTA,
        _code(
            r"(?P<reason>(Assoc|QOS)(Grp|Max)\w*|Max\w+Per(Account|User)"
            r"|QOS(Job|Resource|Time)Limit|Association(Job|Resource|Time)Limit|QOSUsageThreshold"
            r"|AccountingPolicy)"
        ),
        "a limit of your account or QOS is used up ({reason})",
        ("Wait for your other jobs, or use another account or QOS", _LIMITS),
    ),
    Rule(
        Cause.BAD_OPTION,
        _code(
            r"(?P<reason>InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed"
            r"|ReservationDeleted|ReservationInvalid|BadConstraints|QOSMin\w*)"
        ),
        "an option of its request cannot be met ({reason})",
        ("sacctmgr show assoc user=$USER; sinfo", "torchx runopts slurm"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        _code(r"Partition(TimeLimit|Config)"),
        "it asks for more nodes or time than its partition allows",
        ("scontrol show partition", "Ask for less, or choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        _code(r"PartitionNodeLimit"),
        "it asks for more nodes than its partition allows, or has in order",
        ("scontrol show partition; sinfo -R", "Ask for less, or choose another partition"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        _code(r"Partition(Down|Inactive)"),
        "its partition starts no jobs now",
        ("sinfo", "Choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        _code(r"(ReqNodeNotAvail|NodeDown)"),
        "nodes that it needs are down, drained or reserved",
        ("sinfo -R", "scontrol show reservation"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        _code(r"Constraints"),
        "no nodes have the features that it asks for, as things are",
        ("sinfo -o '%P %f %t'",),
    ),
    Rule(
        Cause.RESOURCES,
        _code(
            r"(Resources|BurstBufferResources|NvidiaImexChannels|MpiPortsBusy"
            r"|MaxPoweredUpNodes)"
        ),
        "the nodes that it needs are in use",
        WAIT,
    ),
    Rule(
        Cause.RESOURCES,
        _code(r"Licenses"),
        "the licenses that it needs are in use",
        (*WAIT, "scontrol show licenses"),
    ),
    Rule(Cause.PRIORITY, _code(r"Priority"), "jobs of higher priority come first", WAIT),
    Rule(
        Cause.STARTING,
        _code(r"(CONFIGURING|POWER_UP_NODE|Prolog|Cleaning|BurstBufferStageIn|FedJobLock)"),
        "its nodes are being made ready",
    ),
    Rule(Cause.STARTING, r"^PENDING$", "Slurm has not looked at it yet", WAIT),
    Rule(
        Cause.HELD,
        _code(r"(SUSPENDED|STOPPED)"),
        "it is suspended",
        ("scontrol resume {app}",),
    ),
    # words of programs of Slurm
    Rule(
        Cause.LAUNCH_FAILED,
        r"error: execve\(\): (?P<command>.+?): (No such file|Permission denied)"
        r"|error: Unable to create step|error: task \d+ launch failed|error: couldn't chdir to"
        r"|" + _code("JobLaunchFailure|LAUNCH_FAILED|RaisedSignal:53"),
        "its programs could not be started on the nodes",
        ("See that the job's folder and the command are there on every node", "sinfo -N -l"),
    ),
)
"""Of squeue, sacct and what Slurm's programs print."""

REFUSALS = (
    Rule(
        Cause.QUOTA,
        r"violates accounting/QOS policy|MaxJobCount limit reached",
        "a limit of your account or QOS is reached",
        ("Wait for your other jobs, ask for less, or use another account or QOS", _LIMITS),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"partition not available|Partition in DOWN state|System submissions disabled"
        r"|partition configuration not available",
        "its partition takes no jobs now",
        ("sinfo", "Choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"time limit is invalid|More processors requested than permitted"
        r"|Requested nodes not in this partition",
        "it asks for more time, CPUs or nodes than its partition allows",
        ("scontrol show partition", "Ask for less, or choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"User's group not permitted|Access denied to requested reservation"
        r"|Access/permission denied|Invalid user id",
        "you may not use that partition, reservation or cluster",
        ("sacctmgr show assoc user=$USER; sinfo",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"invalid partition|No partition specified",
        "the partition is not there",
        ("sinfo -s", "Choose one of these: `-cfg partition=...`"),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"Invalid account|Invalid qos|Invalid wckey|Invalid or unknown association",
        "the account or the QOS is not one of yours on that partition",
        ("sacctmgr show assoc user=$USER", "Choose others: `-cfg account=...`, `-cfg qos=...`"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"node configuration is not available|Memory required by task is not available"
        r"|Memory specification can ?not be satisfied",
        "no node of its partition has what it asks for",
        ("sinfo -o '%P %D %c %m %G'", "Ask for less: the role's resource"),
    ),
    Rule(
        Cause.DEPENDENCY,
        r"Job dependency problem|Circular job dependency",
        "the job that it depends on is not there",
    ),
    Rule(
        Cause.BAD_OPTION,
        r"Invalid (feature|generic resource|license|node name|job array|time|--nice|mcs_label"
        r"|Trackable RESource)|reservation is invalid|count specification invalid"
        r"|unrecognized option|invalid option|Invalid --",
        "Slurm does not take an option of its request",
        ("torchx runopts slurm", "sinfo -o '%P %f %G'"),
    ),
)
"""Of sbatch: https://slurm.schedmd.com/sbatch.html, and Slurm's src/common/slurm_errno.c"""
