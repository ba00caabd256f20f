"""Jobs of AWS Batch on the stand-in for AWS: a list of 1,000, waiting for 100, following 50."""

from _aws import measure

measure(
    "aws_batch",
    {"queue": "queue"},
    followed=50,
    fill=lambda aws, job_def, count: aws.admin(
        "batch/jobs", {"count": count, "name": "old", "tags": job_def["tags"]}
    ),
    hold=lambda aws: aws.admin("batch/settings", {"hold": True}),
)
