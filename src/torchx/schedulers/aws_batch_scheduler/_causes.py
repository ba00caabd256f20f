"""Rules for the reasons of Batch and ECS: why jobs wait and why they ended.

https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html has those of waits,
https://github.com/aws/amazon-ecs-agent the errors of containers.
"""

from torchx.schedulers._aws.refusals import NO_CREDENTIALS, NOT_ALLOWED, REFUSED
from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_LESS = "Ask for less: the role's resource, or fewer replicas"
_QUEUES = "aws batch describe-job-queues; aws batch describe-compute-environments"

RULES = (
    # why it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"(?-i:^OutOfMemoryError: )|Container killed due to memory usage",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role's resource",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"job attempt duration exceeded timeout",
        "the option `timeout_s` was reached",
        ("Give it more time: `-cfg timeout_s=...`",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"(?-i:\bCannotPull(Container|ImageManifest|ECRContainer|ContainerAuth)\w*Error\b)",
        "its image could not be pulled",
        (
            "Check the name of the image, and that its hosts may pull it and reach the registry",
            "With fargate: `-cfg assign_public_ip=True` in a public subnet",
        ),
    ),
    Rule(
        Cause.MOUNT,
        r"failed to invoke EFS utils|(?-i:\bCannot(Create|Inspect)VolumeError\b)",
        "a file system could not be mounted",
        ("Check the id of the file system, and that its security group lets the hosts in",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"(?-i:\bResourceInitializationError\b)",
        "what it needs could not be prepared, such as its secrets, its logs or its network",
        ("Check the option `secrets`, and what `execution_role_arn` may read",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"(?-i:\b(Cannot(Start|Create)ContainerError|DockerTimeoutError)\b)",
        "its container could not be started",
        ("Check that its program is in the image",),
    ),
    Rule(
        Cause.UNKNOWN,
        r"(?-i:\bCannotInspectContainerError\b)",
        "its host was too busy to say how it ended",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"(?-i:\bSpotInterruption(Error)?\b)|your spot task was interrupted",
        "its spot instance was taken away",
        ("Run it again, with `-cfg spot=True` for one replica",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"\bHost EC2 \(instance \S+\) (terminated|stopped)",
        "the instance that it ran on was lost, or taken away",
        ("Run it again with retries, on spot with `-cfg spot=True`",),
    ),
    # why it waits
    Rule(
        Cause.UNSCHEDULABLE,
        r"(?-i:MISCONFIGURATION:(COMPUTE_ENVIRONMENT_MAX_RESOURCE|JOB_RESOURCE_REQUIREMENT)\b)"
        r"|CPUs at most, the job needs",
        "its queue has no instances that are large enough, or not so many",
        (_LESS, _QUEUES),
    ),
    Rule(
        Cause.RESOURCES,
        r"(?-i:CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY\b)|^waits for capacity at place",
        "the instances that it needs are in use",
        (*WAIT, "Allow more types of instances in the compute environment"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"^the (queue|compute environment) `[^`]*` is (disabled|invalid)"
        r"|(?-i:\bMISCONFIGURATION:(SERVICE_ROLE_PERMISSIONS"
        r"|EC2_INSTANCE_CONFIGURATION_UNSUPPORTED)\b|^ACTION_REQUIRED\b)",
        "its queue or compute environment starts no jobs now",
        (_QUEUES,),
    ),
    Rule(
        Cause.UNKNOWN,
        r"(?-i:^UNDETERMINED\b)",
        "AWS Batch does not know why its queue starts no jobs",
        (_QUEUES,),
    ),
    Rule(
        Cause.DEPENDENCY,
        r"^dependent job failed",
        "a job that it depends on failed",
    ),
)
"""Of the service, and of the agent of ECS on its hosts, whose errors begin with their names."""

REFUSALS = (
    NO_CREDENTIALS,
    NOT_ALLOWED,
    Rule(
        Cause.BAD_OPTION,
        r"JobQueue \S+ not found|Job queue \S+ (does not exist|not found)",
        "the queue is not there, in that account and region",
        ("aws batch describe-job-queues", "Choose another `-cfg queue=...`"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"JobQueue \S+ is (DISABLED|not in (a )?valid state)|job queue .* is disabled",
        "its queue takes no jobs now",
        (_QUEUES,),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"\(ClientException|\(ValidationException|cannot be called:",
        "AWS Batch does not take an option of the job",
        ("torchx runopts aws_batch",),
    ),
    REFUSED,
)
"""Of the API of AWS Batch."""
