"""What the words of AWS Batch and of the agents that run its containers mean.

https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html and
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
"""

from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_ADMIN = "Ask the administrators of the account to look at the compute environment"
_QUEUE = "aws batch describe-job-queues; aws batch describe-compute-environments"

RULES = (
    Rule(
        Cause.OUT_OF_MEMORY,
        r"OutOfMemoryError|killed due to memory usage|OOMKilled",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"CannotPull\w*Error|CannotPullContainer|CannotPullECRContainer|CannotPullImageManifest",
        "its image cannot be pulled",
        ("See that the image is there, and that the execution role and the network reach it",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"Host EC2 .*terminated|Host was terminated",
        "the instance that it ran on was taken away, as spot instances are",
        ("Run it again with retries",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"attempt duration exceeded timeout|timed? ?out after",
        "its time limit was reached",
        ("Raise the time limit, and save checkpoints",),
    ),
    Rule(
        Cause.DEPENDENCY,
        r"Dependent Job failed|dependency .*failed",
        "a job that it depends on failed",
    ),
    Rule(
        Cause.MOUNT,
        r"EFS utils|failed to mount|mount\.nfs|invalid mount|FSxLustre|error mounting"
        r"|CannotCreateVolume",
        "a volume cannot be mounted",
        ("See that the file system is there, and that the network reaches it",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"ResourceInitializationError|unable to (pull|retrieve) secrets|AccessDenied"
        r"|SERVICE_ROLE_PERMISSIONS|not authorized|assume role|instance profile",
        "AWS does not allow what its request needs",
        ("See the roles of the job and of the compute environment", _ADMIN),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"CannotStartContainerError|CannotCreateContainerError|ContainerRuntime\w*Error"
        r"|executable file not found|exec format error|DockerTimeoutError|CannotInspectContainer",
        "its container could not be started",
        ("See that the command is in the image, for the processor of the instances",),
    ),
    Rule(
        Cause.RESOURCES,
        r"INSUFFICIENT_INSTANCE_CAPACITY|insufficient (instance )?capacity",
        "AWS has no such instances now",
        ("Wait, or use a queue with other instances or in another region",),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"JOB_RESOURCE_REQUIREMENT|COMPUTE_ENVIRONMENT_MAX_RESOURCE|has (?P<most>\S+) CPUs at most"
        r"|larger than .*(any|the) (available|compute)",
        "it asks for more than an instance, or the compute environment, can have",
        ("Ask for less, or use another queue", _QUEUE),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"the (queue|compute environment) `[^`]+` is (disabled|invalid)|INVALID_COMPUTE"
        r"|EC2_INSTANCE_CONFIGURATION_UNSUPPORTED|MISCONFIGURATION",
        "its queue starts no jobs: something of it is disabled or wrong",
        (_QUEUE, _ADMIN),
    ),
    Rule(
        Cause.QUOTA,
        r"(VcpuLimit|MaxSpotInstanceCount|service limit|quota).*(exceed|reached|limit)",
        "a quota of the account is used up",
        ("Ask AWS for more: `aws service-quotas list-service-quotas --service-code ec2`",),
    ),
    Rule(
        Cause.PRIORITY,
        r"waits for capacity at place (?P<place>\d+) of its queue",
        "it is at place {place} of its queue",
        WAIT,
    ),
    Rule(Cause.UNKNOWN, r"UNDETERMINED", "Batch does not know why it waits", (_QUEUE,)),
    Rule(
        Cause.STARTING,
        r"network interface provisioning|^STARTING\b",
        "its container is being started",
    ),
)
