"""Training jobs on the stand-in for AWS: a list of 1,000, waiting for 100, following 100."""

from _aws import measure

CFG = {
    "role": "arn:aws:iam::123456789012:role/service-role/Trainer",
    "launch": "container",
    "output_path": "s3://results/out",
}

measure(
    "aws_sagemaker",
    CFG,
    followed=100,
    fill=lambda aws, job_def, count: aws.admin(
        "sagemaker/ended", {"count": count, "like": {**job_def, "TrainingJobName": "old"}}
    ),
    hold=lambda aws: aws.admin("sagemaker/hold", {"on": True}),
)
