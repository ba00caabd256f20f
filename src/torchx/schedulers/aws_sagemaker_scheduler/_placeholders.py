"""Placeholders in angle brackets for values that are only known at submission. Pure.

These are the account and its bucket, the region, and the digest of the source.
"""

import json
from collections.abc import Mapping
from typing import Any

ACCOUNT, REGION, DIGEST = "<account>", "<region>", "<digest>"
DEFAULT_OUTPUT = f"s3://sagemaker-{REGION}-{ACCOUNT}/"
"""The bucket that SageMaker's own tools use by default."""
CODE_CHANNEL = "code"
"""Input channel that brings the source to a job without network access."""


def fill_in(job_def: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Replaces the placeholders of the request by their values.

    Args:
        values: values by placeholder. Only known fields are filled in, never a user's text.
    """
    filled = {**job_def}
    filled["RoleArn"] = _filled(job_def["RoleArn"], values)
    for name in ("OutputDataConfig", "DebugHookConfig"):
        if name in job_def:
            held = job_def[name]
            filled[name] = {**held, "S3OutputPath": _filled(held["S3OutputPath"], values)}
    if "HyperParameters" in job_def:
        of_toolkit = ("sagemaker_submit_directory", "sagemaker_region")
        filled["HyperParameters"] = {
            key: _filled(value, values) if key in of_toolkit else value
            for key, value in job_def["HyperParameters"].items()
        }
    if "InputDataConfig" in job_def:
        filled["InputDataConfig"] = [_filled_channel(c, values) for c in job_def["InputDataConfig"]]
    return filled


def _filled_channel(channel: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    if channel["ChannelName"] != CODE_CHANNEL:
        return {**channel}
    text = _filled(json.dumps(channel), values)
    filled: dict[str, Any] = json.loads(text)
    return filled


def _filled(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
