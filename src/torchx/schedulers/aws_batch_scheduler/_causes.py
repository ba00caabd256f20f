"""What the reasons of Batch and of ECS mean, why jobs wait and why they ended.

https://docs.aws.amazon.com/batch/latest/userguide/job_stuck_in_runnable.html and
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
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
        r"OutOfMemoryError|killed due to memory usage",
        "it used more memory than it was given",
        ("Ask for more memory: `memMB` of the role's resource",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"attempt duration exceeded timeout",
        "the option `timeout_s` was reached",
        ("Give it more time: `-cfg timeout_s=...`",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"CannotPull(Container|ImageManifest|ECRContainer)\w*Error|pull image manifest",
        "its image could not be pulled",
        (
            "Check the name of the image, and that its hosts may pull it and reach the registry",
            "With fargate: `-cfg assign_public_ip=True` in a public subnet",
        ),
    ),
    Rule(
        Cause.MOUNT,
        r"EFS|efs-utils|failed to invoke EFS|mount(ing)? .*(failed|error)",
        "a file system could not be mounted",
        ("Check the id of the file system, and that its security group lets the hosts in",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"ResourceInitializationError|secretsmanager|ssm.*parameter|unable to pull secrets",
        "what it needs could not be prepared, such as its secrets",
        ("Check the option `secrets`, and what `execution_role_arn` may read",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"Cannot(Start|Create|Inspect)Container\w*Error|Task failed to start",
        "its container could not be started",
        ("Check that its program is in the image",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"spot .*(interrupt|terminat|reclaim)",
        "its spot instance was taken away",
        ("Run it again, with `-cfg spot=True` for one replica",),
    ),
    Rule(
        Cause.NODE_LOST,
        r"Host EC2|instance .*terminated|agent disconnected",
        "the instance that it ran on was lost, or taken away",
        ("Run it again with retries, on spot with `-cfg spot=True`",),
    ),
    # why it waits
    Rule(
        Cause.UNSCHEDULABLE,
        r"COMPUTE_ENVIRONMENT_MAX_RESOURCE|JOB_RESOURCE_REQUIREMENT|CPUs at most, the job needs",
        "its queue has no instances that are large enough, or not so many",
        (_LESS, _QUEUES),
    ),
    Rule(
        Cause.RESOURCES,
        r"INSUFFICIENT_INSTANCE_CAPACITY|waits for capacity",
        "the instances that it needs are in use",
        (*WAIT, "Allow more types of instances in the compute environment"),
    ),
    Rule(
        Cause.QUEUE_LIMIT,
        r"the queue .*is (disabled|invalid)|compute environment .*is (disabled|invalid)"
        r"|MISCONFIGURATION|ACTION_REQUIRED",
        "its queue or compute environment starts no jobs now",
        (_QUEUES,),
    ),
    Rule(
        Cause.DEPENDENCY,
        r"dependent job|depends on",
        "a job that it depends on failed, or has not ended",
        (_QUEUES,),
    ),
)

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
