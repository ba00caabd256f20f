"""What the words of a Kubernetes cluster mean: of its scheduler, kubelets, controllers and queues.

https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/
"""

from torchx.schedulers._core.causes import Cause, Rule

_EVENTS = "kubectl get events --sort-by=.lastTimestamp"
_NODES = "kubectl describe nodes"

RULES = (
    # images
    Rule(
        Cause.IMAGE_PULL,
        r"(ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable"
        r"|ImageInspectError|SignatureValidationFailed)",
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
        r"FailedMount|FailedAttachVolume|MountVolume\.|unbound immediate PersistentVolumeClaims"
        r"|persistentvolumeclaim \"?(?P<claim>[\w.-]+)\"? not found|volume node affinity conflict"
        r"|VolumeMountsNotSupported",
        "a volume cannot be mounted",
        ("kubectl get pvc", _EVENTS),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"CreateContainerConfigError"
        r"|(configmap|secret|serviceaccount) \"?[\w.-]+\"? (is )?not found"
        r"|error looking up service account|is forbidden: (?!exceeded)|InvalidSpec",
        "its request names something that is not there, or is not allowed",
        (_EVENTS, "torchx doctor -s kubernetes"),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"ContainerCannotRun|CreateContainerError|RunContainerError|StartError"
        r"|executable file not found",
        "its container could not be started",
        ("See that the command is in the image", _EVENTS),
    ),
    # how it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"\bOOMKilled\b|^out of memory$|low on resource: memory",
        "it used more memory than it was given",
        ("Raise memMB in the role's resource, or use less",),
    ),
    Rule(
        Cause.DISK_FULL,
        r"low on resource: ephemeral-storage|ephemeral local storage usage exceeds"
        r"|Usage of EmptyDir volume",
        "it used more disk than it may",
        ("Write to a volume, or ask for more ephemeral storage",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"DeadlineExceeded|deadline exceeded|active longer than specified deadline",
        "its time limit was reached",
        ("Raise the limit, and save checkpoints",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"\bPreempt(ed|ing|ionByScheduler)\b|PreemptionByScheduler|EvictionByEvictionAPI|DeletionByTaintManager"
        r"|TerminationByKubelet|\bEvicted\b|WorkloadEvicted",
        "its pod was evicted to make room, or to empty its node",
        ("Run it again with retries, or with a higher priority", _EVENTS),
    ),
    Rule(
        Cause.NODE_LOST,
        r"NodeLost|NodeShutdown|node (is )?(was )?(not ready|shut(ting)? down)"
        r"|Terminated: Pod was terminated in|DeletionByPodGC|node .*(unreachable|not found)"
        r"|Shutdown: |NodeFailure",
        "the node that it ran on was lost",
        ("Run it again with retries", _NODES),
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
        r"exceeded quota|insufficient (unused )?quota|quota.* (exceeded|insufficient)"
        r"|exceeds? .*(nominal )?quota|limited: .*used:",
        "a quota of its namespace or queue is used up",
        ("kubectl describe resourcequota", "Wait for other jobs, or ask for less"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"(Local|Cluster)Queue .*(not found|doesn't exist|inactive)"
        r"|Queue .* (is )?not (open|found)",
        "its queue is not there, or takes no jobs now",
        ("kubectl get localqueues", "Choose another `-cfg queue=...`"),
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
        r"Insufficient (?P<what>[\w/-]+(\.[\w/-]+)*)",
        "no node has enough {what} free",
        ("Ask for less, or wait: " + _NODES,),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"untolerated taint|had taint|didn't match (Pod's )?node (affinity|selector)"
        r"|node\(s\) (were|was) unschedulable|Too many pods|no nodes available"
        r"|pod (anti-?)?affinity|didn't have free ports|topology spread",
        "no node fits what it asks for",
        ("See its node selector, tolerations and resource: " + _NODES,),
    ),
    Rule(Cause.HELD, r"SchedulingGated", "a scheduling gate holds its pods", (_EVENTS,)),
    Rule(
        Cause.RETRYING,
        r"CrashLoopBackOff",
        "its container keeps failing, and starts again later and later",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"FailedCreate(PodSandBox|PodContainer)?\b|network plugin|CNI",
        "its pods cannot be made",
        (_EVENTS,),
    ),
)

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
