"""Rules for messages of MCAD, of the AppWrapper controller and of the cluster.

They are in https://github.com/project-codeflare/multi-cluster-app-dispatcher and
https://github.com/project-codeflare/appwrapper, in the sources of their controllers.
"""

from torchx.schedulers._core.causes import Cause, Rule
from torchx.schedulers._kube.apps.causes import RULES as CLUSTER

_LOOK = "kubectl describe appwrappers"

RULES = (
    Rule(
        Cause.QUOTA,
        r"Insufficient quota\b|(?-i:\bQuotaNotAvailable\b)",
        "a quota of its namespace or queue is used up",
        ("Wait for other jobs, or ask for less", _LOOK),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"Insufficient resources to dispatch|(?-i:\bPodsFailedScheduling\b)",
        "the cluster has not enough free for all of it",
        ("Ask for less, or wait", "kubectl describe nodes"),
    ),
    Rule(
        Cause.PRIORITY,
        r"^(?-i:AwaitingHeadOfLine|FrontOfQueue)\b",
        "others are before it in the queue",
        (_LOOK,),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"(?-i:\bDispatchDeadlineExceeded\b)",
        "its time limit was reached",
        ("Raise the limit, and save checkpoints",),
    ),
    Rule(
        Cause.RETRYING,
        r"(?-i:\b(InsufficientPodsReady|MinPodsNotRunning|ExcessiveSleeping|AutopilotNoExecute)\b)",
        "not all of its pods came in time, and it is started again",
        (_LOOK,),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"^(?-i:CreateFailed): (?!.*exceeded quota)",
        "what it wraps could not be made",
        (_LOOK,),
    ),
    Rule(
        Cause.APP_ERROR,
        r"^(?-i:FoundFailedPods|FailedComponent)\b",
        "a pod of it failed, and it has no restart left",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.KILLED,
        r"^(?-i:MissingComponent)\b",
        "something that it wraps was deleted by somebody else",
        (_LOOK,),
    ),
    *CLUSTER,
)
"""Of AppWrappers, and of what they wrap."""
