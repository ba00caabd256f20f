"""What reasons and states of Slurm mean.

https://slurm.schedmd.com/job_reason_codes.html, https://slurm.schedmd.com/squeue.html
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_LOOK = "scontrol show job {app}"
_LIMITS = "sacctmgr show qos; sacctmgr show assoc user=$USER"

RULES = (
    # states of jobs that ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"\bOUT_OF_ME|oom[-_ ]kill|out of memory",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role, or `-cfg mem=...`",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"\bTIMEOUT\b|DUE TO TIME LIMIT|\bDEADLINE\b",
        "its time limit was reached",
        ("Ask for more time: `-cfg time=HH:MM:SS`, and save checkpoints",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"\bPREEMPTED\b|DUE TO PREEMPTION",
        "a job of higher priority took its nodes",
        ("Run it again with retries, or in a QOS that is not preempted",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"\b(NODE_FAIL|BOOT_FAIL)\b|DUE TO NODE FAILURE|NodeDown\b",
        "a node failed while it ran",
        ("Run it again with retries; `sinfo -R` says what is wrong with nodes",),
    ),
    # reasons why it waits
    Rule(
        Cause.DEPENDENCY,
        r"\bDependencyNeverSatisfied\b",
        "a job that it depends on failed, so it can never start",
        ("torchx cancel {app}", "Run it again without that dependency"),
    ),
    Rule(Cause.DEPENDENCY, r"\bDependency\b", "it waits for another job to end", (_LOOK,)),
    Rule(
        Cause.HELD,
        r"\bJobHeldAdmin\b",
        "an administrator holds it",
        ("Ask the administrators of the cluster",),
    ),
    Rule(
        Cause.HELD,
        r"\b(JobHeldUser|JobHold|REQUEUE_HOLD|SPECIAL_EXIT|JobHoldMaxRequeue|launch_failed_requeued_held)\b",
        "it is held",
        ("scontrol release {app}",),
    ),
    Rule(Cause.BEGIN_TIME, r"\bBeginTime\b", "it is to begin later", (_LOOK,)),
    Rule(
        Cause.QUOTA,
        r"\b(?P<reason>(Assoc|QOS)(Grp|Max)\w*|Max\w+PerAccount|QOSJobLimit|QOSResourceLimit"
        r"|QOSTimeLimit|AssociationJobLimit|AssocationResourceLimit|AccountingPolicy|Licenses)\b",
        "a limit of your account or QOS is used up ({reason})",
        ("Wait for your other jobs, or use another account or QOS", _LIMITS),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"\b(?P<reason>InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed|QOSUsageThreshold"
        r"|Reservation\w*|BadConstraints|QOSMin\w*|InvalidPartition)\b",
        "an option of its request cannot be met ({reason})",
        ("sacctmgr show assoc user=$USER; sinfo", "torchx runopts slurm"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"\bPartition(TimeLimit|NodeLimit|Config)\b",
        "it asks for more nodes or time than its partition allows",
        ("scontrol show partition", "Ask for less, or choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"\bPartition(Down|Inactive)\b",
        "its partition starts no jobs now",
        ("sinfo", "Choose another `-cfg partition=...`"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"\bReqNodeNotAvail\b|\bNode(NotAvail|NotResponding)\b|FrontEndDown",
        "nodes that it needs are down, drained or reserved",
        ("sinfo -R", "scontrol show reservation"),
    ),
    Rule(Cause.RESOURCES, r"\bResources\b", "the nodes that it needs are in use", WAIT),
    Rule(Cause.PRIORITY, r"\bPriority\b", "jobs of higher priority come first", WAIT),
    Rule(
        Cause.STARTING,
        r"\b(CONFIGURING|POWER_UP_NODE|Prolog|Cleaning|WaitingForScheduling)\b",
        "its nodes are being made ready",
    ),
    Rule(Cause.STARTING, r"^PENDING$", "Slurm has not looked at it yet", WAIT),
    Rule(Cause.HELD, r"\b(SUSPENDED|STOPPED)\b", "it is suspended", ("scontrol resume {app}",)),
    # words of programs of Slurm
    Rule(
        Cause.LAUNCH_FAILED,
        r"execve\(\): (?P<command>.+): No such file|Unable to create step|task launch failed"
        r"|couldn't chdir|JobLaunchFailure|\bLAUNCH_FAILED\b|\bRaisedSignal:53",
        "its programs could not be started on the nodes",
        ("See that the job's folder and the command are there on every node", "sinfo -N -l"),
    ),
)

REFUSALS = (
    Rule(
        Cause.QUOTA,
        r"violates accounting/QOS policy|MaxJobCount limit reached"
        r"|\b(?P<reason>(Assoc|QOS)(Grp|Max)\w+)",
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
