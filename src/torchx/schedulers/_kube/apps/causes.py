"""Rules for messages of a Kubernetes cluster: its scheduler, kubelets, controllers and queues.

https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_EVENTS = "kubectl get events --sort-by=.lastTimestamp"
_NODES = "kubectl describe nodes"

RULES = (
    # images; reasons are words of their own case, which no object's name can have
    Rule(
        Cause.IMAGE_PULL,
        r"(?-i:\b(ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull"
        r"|RegistryUnavailable|ImageInspectError|SignatureValidationFailed)\b)",
        "its image cannot be pulled",
        (
            "Check the name of the image, and the secret for its registry: `-cfg image_secret=...`",
            "`--image` names another one; `docker/Dockerfile` builds the default one of components",
            _EVENTS,
        ),
    ),
    # mounts and configuration
    Rule(
        Cause.MOUNT,
        r"(?-i:\b(FailedMount|FailedAttachVolume|VolumeMountsNotSupported)\b)|\bMountVolume\."
        r"|unbound immediate PersistentVolumeClaims"
        r"|persistentvolumeclaim \"?(?P<claim>[\w.-]+)\"? not found"
        r"|^pvc \S+ is not found|: pvc \S+ is not found"
        r"|nodes are available: \d+ node\(s\) (had volume node affinity conflict"
        r"|didn't match PersistentVolume's node affinity|had no available volume zone"
        r"|exceed max volume count|did not have enough free storage)\.(\s|$)",
        "a volume cannot be mounted",
        ("kubectl get pvc", _EVENTS),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"(?-i:\bCreateContainerConfigError\b)"
        r"|(configmap|secret|serviceaccount) \"?[\w.-]+\"? (is )?not found"
        r"|couldn't find key \S+ in (ConfigMap|Secret)"
        r"|error looking up service account|is forbidden: (?!exceeded)|(?-i:\bInvalidSpec\b)",
        "its request names something that is not there, or is not allowed",
        (_EVENTS, "torchx doctor -s kubernetes"),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"(?-i:\b(ContainerCannotRun|CreateContainerError|RunContainerError|StartError)\b)"
        r"|executable file not found",
        "its container could not be started",
        ("See that the command is in the image", _EVENTS),
    ),
    # how it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"(?-i:\bOOMKilled\b)|^out of memory$",
        "it used more memory than it was given",
        ("Raise memMB in the role's resource, or use less",),
    ),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"low on resource: memory",
        "its node was low on memory, and it used more than it had asked for",
        ("Raise memMB in the role's resource, or use less",),
    ),
    Rule(
        Cause.DISK_FULL,
        r"ephemeral local storage usage exceeds|exceeded its local ephemeral storage limit"
        r"|Usage of EmptyDir volume",
        "it used more disk than it may",
        ("Write to a volume, or ask for more ephemeral storage",),
    ),
    Rule(
        Cause.DISK_FULL,
        r"low on resource: (ephemeral-storage|inodes)",
        "its node was low on disk space",
        ("Write to a volume, or ask for more ephemeral storage", "Run it again with retries"),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"(?-i:\bOutOf(cpu|memory|ephemeral-storage|pods|\S*/\S+)\b)"
        r"|Node didn't have enough resource",
        "its node had no room for it any more when it came",
        ("Run it again with retries", _NODES),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"^(\S+: )?(?-i:DeadlineExceeded: )|^deadline exceeded\b"
        r"|active (on the node )?longer than (the )?specified deadline",
        "its time limit was reached",
        ("Raise the limit, and save checkpoints",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"(?-i:\b(NodeLost|NodeShutdown|DeletionByPodGC|NodeFailures?)\b)|(?-i:^Shutdown: )"
        r"|in response to imminent node shutdown|rejected as the node is shutting down"
        r"|\bnode \S+ (is |was )?(unreachable|not ready|not found)\b",
        "the node that it ran on was lost",
        ("Run it again with retries", _NODES),
    ),
    Rule(
        Cause.PREEMPTED,
        r"(?-i:\b(Preempted|Preempting|PreemptionByScheduler|EvictionByEvictionAPI"
        r"|DeletionByTaintManager|DeletionByDeviceTaintManager|TerminationByKubelet"
        r"|WorkloadEvicted)\b)|(?-i:\bEvicted:)|(?-i:^Evicted$)",
        "its pod was evicted to make room, or to empty its node",
        ("Run it again with retries, or with a higher priority", _EVENTS),
    ),
    Rule(
        Cause.UNKNOWN,
        r"^its pod is gone$",
        "its pod was deleted, and nobody says why",
        (_EVENTS,),
    ),
    # queues and quotas
    Rule(
        Cause.QUOTA,
        r"exceeded quota: |insufficient unused quota|queue resource quota insufficient",
        "a quota of its namespace or queue is used up",
        ("kubectl describe resourcequota", "Wait for other jobs, or ask for less"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"insufficient quota for \S+ in flavor|unavailable in ClusterQueue",
        "it asks for more than its queue ever has",
        ("kubectl describe clusterqueues", "Ask for less, or choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"(Local|Cluster)Queue \S+ (not found|doesn't exist|is inactive)"
        r"|namespace doesn't match ClusterQueue selector",
        "its queue is not there, or takes no jobs from here now",
        ("kubectl get localqueues", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"^(?-i:(Cluster|Local)QueueStopped: )",
        "its queue was stopped",
        ("kubectl get localqueues", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.RETRYING,
        r"^(?-i:PodsReadyTimeout: )|exceeded the PodsReady timeout",
        "not all of its pods became ready in time, and it waits for its turn again",
        (_EVENTS,),
    ),
    Rule(
        Cause.HELD,
        r"^(?-i:Deactivated: )|the workload is deactivated",
        "somebody has taken it out of its queue",
        ("kubectl get workloads",),
    ),
    Rule(
        Cause.PRIORITY,
        r"waits in queue `(?P<queue>[^`]+)`",
        "it waits for its turn in queue `{queue}`",
        ("kubectl get workloads",),
    ),
    # placement
    Rule(
        Cause.UNSCHEDULABLE,
        r"node(s are available|s are unavailable): \d+ Insufficient (?P<what>[\w/-]+(\.[\w/-]+)*)"
        r"\.?(\s|$)",
        "no node has enough {what} free",
        ("Ask for less, or wait: " + _NODES,),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"\d+/\d+ nodes are available|all nodes are unavailable|no nodes available to schedule"
        r"|couldn't assign flavors to pod set",
        "no node fits what it asks for",
        ("See its node selector, tolerations and resource: " + _NODES,),
    ),
    Rule(
        Cause.RESOURCES,
        r"resource in cluster is overused",
        "what it needs is in use",
        (*WAIT, _NODES),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"tasks in gang unschedulable",
        "its pods do not all fit at the same time",
        ("Ask for less, or wait: " + _NODES,),
    ),
    Rule(
        Cause.HELD,
        r"(?-i:\bSchedulingGated\b)",
        "a scheduling gate holds its pods",
        (_EVENTS,),
    ),
    Rule(
        Cause.RETRYING,
        r"(?-i:\bCrashLoopBackOff\b)",
        "its container keeps failing, and starts again later and later",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"(?-i:\bFailedCreate(PodSandBox|PodContainer)?: )",
        "its pods cannot be made",
        (_EVENTS,),
    ),
)
"""Of pods, their events, Jobs, JobSets, Volcano's groups and Kueue's workloads."""

REFUSALS = (
    Rule(
        Cause.QUOTA,
        r"exceeded quota",
        "a quota of the namespace is used up",
        ("kubectl describe resourcequota", "Wait for other jobs, or ask for less"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"(maximum|minimum) [\w./-]+ usage per",
        "it asks for more, or less, than the namespace allows",
        ("kubectl describe limitrange", "Change the role's resource"),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"is forbidden: User\b|cannot (create|get|list|patch|delete) resource"
        r"|you are not allowed to",
        "its user may not do that in the namespace",
        ("kubectl auth can-i --list", "torchx doctor -s {scheduler}"),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"does not accept the credentials|program for credentials|credential plugin",
        "the credentials for the cluster are missing, or have expired",
        ("Log in to the cluster anew", "torchx doctor -s {scheduler}"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"can only submit job to queue with state|(Local|Cluster)?Queue .* is inactive",
        "its queue takes no jobs now",
        ("kubectl get queues", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"unable to find job queue",
        "the queue is not there",
        ("kubectl get queues", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"namespaces \"(?P<name>[\w.-]+)\" not found",
        "the namespace `{name}` is not there",
        ("kubectl get namespaces", "Choose another `-cfg namespace=...`"),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"(serviceaccount|priorityclass\S*|no PriorityClass with name)"
        r" \"?(?P<name>[\w.-]+)\"?( was)? not found|no PriorityClass with name (?P<class>[\w.-]+)",
        "its request names something that is not there",
        ("kubectl get serviceaccounts,priorityclasses",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"violates PodSecurity|admission webhook .* denied|ValidatingAdmissionPolicy .* denied",
        "a rule of the cluster forbids what it asks for",
        ("Leave out what the message names, or ask the administrators of the cluster",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"the cluster has no [\w.]+",
        "the cluster does not run what the job is made of",
        ("torchx doctor -s {scheduler}",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"already exists",
        "another job has that name",
        ("Run it again, for another name",),
    ),
)
"""Of the API server, and of the webhooks that it asks."""
