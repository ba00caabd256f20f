"""Rules for messages of MCAD, of the AppWrapper controller and of the cluster.

https://github.com/project-codeflare/multi-cluster-app-dispatcher and
https://project-codeflare.github.io/appwrapper/arch-controller/
"""

from torchx.schedulers._core.causes import Cause, Rule
from torchx.schedulers._kube.apps.causes import RULES as CLUSTER

_LOOK = "kubectl describe appwrappers"

RULES = (
    Rule(
        Cause.QUOTA,
        r"insufficient quota|QuotaNotAvailable|quota (is )?not available|borrow",
        "a quota of its namespace or queue is used up",
        ("Wait for other jobs, or ask for less", _LOOK),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"Insufficient resources to dispatch|couldn't assign flavors|AppWrapperNotRunnable"
        r"|no (suitable|available) (node|flavor)",
        "the cluster has not enough free for all of it",
        ("Ask for less, or wait", "kubectl describe nodes"),
    ),
    Rule(
        Cause.PRIORITY,
        r"AwaitingHeadOfLine|FrontOfQueue|HeadOfLine|QueuedNotDispatched|waits? for its turn"
        r"|QuotaReserved: Suspended|^Suspended\b",
        "others are before it in the queue",
        (_LOOK,),
    ),
    Rule(
        Cause.RETRYING,
        r"InsufficientPodsReady|ExcessiveSleeping|PodsReady.*(insufficient|false)|Resetting"
        r"|requeu",
        "not all of its pods came in time, and it is started again",
        (_LOOK,),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"CreateFailed|error creating|invalid resource|ItemCreationFailure|CanceledByWebhook",
        "what it wraps could not be made",
        (_LOOK,),
    ),
    Rule(
        Cause.APP_ERROR,
        r"FoundFailedPods|MaxRetryExceeded|PodsFailed|found failed pods",
        "a pod of it failed, and it has no restart left",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"PreemptedByKueue|Workload.*(preempted|evicted)",
        "it was evicted to make room",
        ("Run it again, or with a higher priority",),
    ),
    *CLUSTER,
)
