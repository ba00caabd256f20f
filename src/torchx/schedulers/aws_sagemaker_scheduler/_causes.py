"""What the words of SageMaker mean.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html and
https://docs.aws.amazon.com/sagemaker/latest/dg/training-troubleshooting.html
"""

from torchx.schedulers._core.causes import Cause, Rule

_PAGE = "torchx status {app}  # has the page of the job in the console"

RULES = (
    Rule(
        Cause.QUOTA,
        r"ResourceLimitExceeded|account-level service limit|service quota",
        "a quota of the account for such instances is used up",
        ("Ask AWS for more: `aws service-quotas list-service-quotas --service-code sagemaker`",),
    ),
    Rule(
        Cause.RESOURCES,
        r"Insufficient capacity error from EC2.*retrying",
        "AWS has no such instances now, and SageMaker tries again",
        ("Wait, or take another `-cfg instance_type=...` or region",),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"CapacityError|Unable to provision requested ML compute capacity|Insufficient capacity",
        "AWS had no such instances",
        ("Try later, or take another `-cfg instance_type=...` or region",),
    ),
    Rule(
        Cause.TIME_LIMIT,
        r"MaxRuntimeExceeded|ran longer than max_run",
        "its time limit was reached",
        ("Raise `-cfg max_run=SECONDS`, and save checkpoints",),
    ),
    Rule(
        Cause.RESOURCES,
        r"MaxWaitTimeExceeded|waited for spot instances longer",
        "no spot instances came within `max_wait`",
        ("Raise `-cfg max_wait=SECONDS`, or do without spot instances",),
    ),
    Rule(
        Cause.PREEMPTED,
        r"^(Interrupted|Restarting)\b|spot (instances? )?.*interrupt",
        "its spot instances were taken away; SageMaker starts it again",
        ("Save checkpoints",),
    ),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"OutOfMemory|out of memory|memory (was )?exhausted",
        "it used more memory than there is",
        ("Take a larger `-cfg instance_type=...`, or use less",),
    ),
    Rule(
        Cause.DISK_FULL,
        r"Disk quota|no space left|volume .*full",
        "its volume is full",
        ("Raise `-cfg volume_size=GB`",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"(cannot|could not|failed to|unable to) .{0,40}(pull|find|access|download) .{0,40}image"
        r"|image .{0,60}(does not exist|not found)|CannotPullContainer"
        r"|ECR .*(denied|not authorized)",
        "its image cannot be pulled",
        ("See that the image is in ECR, and that the role may read it",),
    ),
    Rule(
        Cause.MOUNT,
        r"Data download failed|S3 .*(NoSuchKey|NoSuchBucket|AccessDenied|does not exist|403|404)"
        r"|No S3 objects found|FileSystem.*(mount|access)|unable to mount",
        "its data could not be read",
        ("See that the path is there, and that the role may read it",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"AccessDenied|not authorized to perform|ValidationException|could not assume role"
        r"|Please ensure that the role",
        "AWS does not allow what its request asks for",
        ("See the role of `-cfg role=...`", "torchx doctor -s aws_sagemaker"),
    ),
    Rule(
        Cause.NODE_LOST,
        r"InternalServerError|instance was unhealthy|hardware|node .*(failed|lost)",
        "AWS lost the machine that it ran on",
        ("Run it again",),
    ),
    Rule(
        Cause.APP_ERROR,
        r"ErrorMessage \"(?P<message>[^\"\\]+)",
        "{message}",
        ("torchx log {app}",),
    ),
    Rule(
        Cause.APP_ERROR,
        r"AlgorithmError|ExecuteUserScriptError|exit code:? *[1-9]",
        "its program ended with an error",
        ("torchx log {app}", _PAGE),
    ),
    Rule(
        Cause.STARTING,
        r"^(Starting|LaunchingMLInstances|PreparingTrainingStack|Pending)\b",
        "its instances are being started",
    ),
    Rule(
        Cause.STARTING,
        r"^(Downloading|DownloadingTrainingImage)\b",
        "its image or its data is being downloaded",
    ),
)
