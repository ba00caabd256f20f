"""Rules for SageMaker's reasons: why training jobs wait and why they failed.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html lists
the states. Reasons of failures are not documented; these were reported by users.
"""

from torchx.schedulers._aws.refusals import NO_CREDENTIALS, NOT_ALLOWED, REFUSED
from torchx.schedulers._core.cause_rules import WAIT
from torchx.schedulers._core.causes import Cause, Rule

_OTHER_TYPE = "Use another `instance_type`, other subnets or another region"
_ROLE = "Check what the job's role may do"

_OF_SERVICE = r"^(?!AlgorithmError).*"
"""In front of words of the service itself: an ``AlgorithmError`` holds those of the program."""

RULES = (
    # why it ended
    Rule(
        Cause.OUT_OF_MEMORY,
        r"^AlgorithmError: .*ErrorMessage \"([\w.]*OutOfMemoryError|RuntimeError): CUDA[^\"]*out of"
        r" memory",
        "the memory of a GPU was not enough",
        ("Use a smaller batch, shard the model, or another `instance_type`",),
    ),
    Rule(
        Cause.APP_ERROR,
        r"^AlgorithmError\b",
        "its program failed",
        ("torchx log {app} {replica}",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"longer than max_run allows|(?-i:^MaxRuntimeExceeded\b)",
        "the option `max_run` was reached",
        ("Give it more time: `-cfg max_run=...`, and checkpoints to go on from",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"longer than max_wait allows|(?-i:^MaxWaitTimeExceeded\b)",
        "there were no spot instances in the time of `max_wait`",
        ("Give it more time: `-cfg max_wait=...`", "Run it without spot", _OTHER_TYPE),
    ),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"^ClientError: (Please use an instance type with more memory"
        r"|Artifact upload failed: ?ClientError: Out of Memory)",
        "its instances have less memory than it used",
        ("Use another `instance_type`",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        _OF_SERVICE + r"((cannot|could not|failed to|unable to) (pull|download) .*(image|container)"
        r"|image does not exist|manifest unknown)",
        "its image could not be pulled",
        ("Check the name of the image, and that the job's role may pull it from its registry",),
    ),
    Rule(
        Cause.RESOURCES,
        _OF_SERVICE + r"(\bCapacityError\b|insufficient ?capacity|Unable to provision requested)",
        "the instances that it needs are in use",
        ("Try again later", _OTHER_TYPE),
    ),
    Rule(
        Cause.QUOTA,
        _OF_SERVICE + r"(ResourceLimitExceeded|account-level service limit)",
        "a quota of the account is used up",
        ("Ask for more of it: Service Quotas, Amazon SageMaker, in the console",),
    ),
    Rule(
        Cause.DISK_FULL,
        _OF_SERVICE + r"(insufficient disk space|no space left on device)",
        "the volume of its instances is full",
        ("Give it a larger one: `-cfg volume_size=...`",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        _OF_SERVICE + r"(executable file not found|OCI runtime create failed)",
        "its container could not be started",
        ("Check that its program is in the image, and on PATH there",),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        _OF_SERVICE + r"unable to assume the role",
        "SageMaker may not act in the job's role",
        ("Check `-cfg role=...`: it must be there, and let sagemaker.amazonaws.com assume it",),
    ),
    Rule(
        Cause.BAD_OPTION,
        _OF_SERVICE + r"(route to an S3 VPC endpoint|allow outbound traffic to S3)",
        "its subnets have no way to S3",
        ("Give them an S3 endpoint or a NAT, and let `security_group_ids` reach it",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"^ClientError: Please use a GPU instance",
        "what it trains with needs GPUs",
        ("Use another `instance_type`",),
    ),
    Rule(
        Cause.MOUNT,
        r"^ClientError: Data download failed",
        "its input could not be fetched from S3",
        ("Check the places in S3", _ROLE),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"^ClientError: Artifact upload failed",
        "its results could not be stored in S3",
        ("Check `output_path` and `checkpoint_s3_uri`", _ROLE),
    ),
    Rule(
        Cause.UNKNOWN,
        r"^InternalServerError\b",
        "SageMaker had an internal error",
        ("Run it again; `-cfg max_retry_attempts=2` lets SageMaker do that",),
    ),
    # why it waits
    Rule(
        Cause.PREEMPTED,
        r"(?-i:^Interrupted\b)",
        "its spot instances were taken away, and it waits for others",
        ("Nothing: it starts again, from its checkpoints if it has some",),
    ),
    Rule(Cause.RETRYING, r"(?-i:^Restarting\b)", "SageMaker starts it again"),
    Rule(
        Cause.RESOURCES,
        r"(?-i:^Pending\b)",
        "the instances that it needs are in use",
        WAIT,
    ),
    Rule(
        Cause.STARTING,
        r"(?-i:^(Starting|LaunchingMLInstances|PreparingTrainingStack|Downloading\w*|Updating)\b)",
        "SageMaker gets its instances ready",
    ),
)
"""Of the service; no page lists the reasons of failures, those who got them showed them."""

REFUSALS = (
    NO_CREDENTIALS,
    Rule(
        Cause.UNSCHEDULABLE,
        r"is not available in this region",
        "that type of instances is not there in this region",
        (_OTHER_TYPE,),
    ),
    Rule(
        Cause.QUOTA,
        r"\(ResourceLimitExceeded|account-level service limit",
        "a quota of the account is used up, or is 0 for this type of instances",
        ("Ask for more of it: Service Quotas, Amazon SageMaker, in the console", _OTHER_TYPE),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"Could not assume role|unable to assume the role|role .* cannot be found",
        "SageMaker may not act in the job's role",
        ("Check `-cfg role=...`: it must be there, and let sagemaker.amazonaws.com assume it",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"Access denied for repository|Cannot find (the )?requested image"
        r"|Requested image .*not found|Invalid training image",
        "the image is not there, or the job's role may not pull it",
        ("Check the name of the image, which must be in Amazon ECR, and what the role may pull",),
    ),
    NOT_ALLOWED,
    Rule(
        Cause.BAD_OPTION,
        r"\(ValidationException|cannot be called:",
        "SageMaker does not take an option of the job",
        ("torchx runopts aws_sagemaker",),
    ),
    REFUSED,
)
"""Of the API of SageMaker."""
