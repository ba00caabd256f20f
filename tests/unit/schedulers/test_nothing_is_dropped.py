"""What an app asks for is in the request, is refused, or is said once to be left out."""

from typing import Any

import pytest

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.runner import get_runner
from torchx.specs import AppDef, BindMount, Resource, Role

EFA = {"vpc.amazonaws.com/efa": 1}
ASKED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "mounts": ({"mounts": [BindMount("/srv/data", "/mounted")]}, ("/mounted",)),
    "devices": (
        {"resource": Resource(cpu=1, gpu=0, memMB=100, devices=EFA)},
        ("uverbs", "vpc.amazonaws.com/efa"),
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "local_cwd": {},
    "local_docker": {},
    "slurm": {},
    "lsf": {},
    "kubernetes": {},
    "kubernetes_mcad": {},
    "aws_batch": {"queue": "q"},
    "aws_sagemaker": {"role": "arn:aws:iam::1:role/x", "instance_type": "ml.m5.large"},
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("scheduler", OPTIONS)
def test_it_is_there_or_refused_or_said(
    scheduler: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    more, signs = ASKED[what]
    fields = {"resource": Resource(cpu=1, gpu=0, memMB=100), **more}
    role = Role("r", "image:1", entrypoint="true", args=["x.py"], **fields)
    refused = ""
    with get_runner() as runner:
        try:
            request = str(runner.dryrun(AppDef("a", [role]), scheduler, OPTIONS[scheduler]))
        except (UnsupportedRequest, InvalidInput) as err:
            refused, request = str(err), ""
    said = [r.getMessage() for r in caplog.records if f"leaves out `{what}`" in r.getMessage()]
    answers = [
        any(sign in request for sign in signs),
        any(word in refused for word in ("mounts", "vpc.amazonaws.com/efa")),
        bool(said),
    ]
    assert answers.count(True) == 1
    assert len(said) <= 1
