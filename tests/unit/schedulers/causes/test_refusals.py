"""The cause of a launch that is refused, from the errors that clients raise for backends' words."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.unit.schedulers.causes.corpus import INVENTED, SOURCES
from torchx._aws.errors import translated
from torchx._docker._errors import missing_image
from torchx.errors import (
    BackendUnavailable,
    DockerRefused,
    InvalidInput,
    JobStartError,
    NotInstalled,
    ProgramNotFound,
    RefusedByRegistry,
    TorchXError,
)
from torchx.schedulers._core.cause_rules import COMMON_REFUSALS
from torchx.schedulers._core.refusals import explain_refusal
from torchx.schedulers._kube.answers import api_error
from torchx.schedulers._kube.apps.causes import REFUSALS as KUBE
from torchx.schedulers._kube.calls import JOBS, Answer, Call
from torchx.schedulers.aws_batch_scheduler._causes import REFUSALS as BATCH
from torchx.schedulers.aws_sagemaker_scheduler._causes import REFUSALS as SAGEMAKER
from torchx.schedulers.causes import Rule
from torchx.schedulers.docker_scheduler._causes import REFUSALS as DOCKER
from torchx.schedulers.local_scheduler._causes import REFUSALS as LOCAL
from torchx.schedulers.lsf_scheduler._causes import REFUSALS as LSF
from torchx.schedulers.slurm_scheduler._causes import REFUSALS as SLURM
from torchx.specs import AppState


class Refusal(NamedTuple):
    """What a backend says, and the cause of it."""

    cause: str
    source: str
    words: str
    more: Any = None


def check(case: Refusal, err: TorchXError, rules: Sequence[Rule]) -> None:
    found = explain_refusal(err, "here", rules)
    assert found.cause.value == case.cause, found
    assert found.state is AppState.UNSUBMITTED
    assert case.source.startswith(SOURCES), case.source
    assert "\n" not in found.line
    assert "{" not in found.line + "".join(found.do)


# -- Slurm --------------------------------------------------------------------------------------

SLURM_SOURCE = "https://github.com/SchedMD/slurm/blob/284c3b95/src/"
ERRNO = SLURM_SOURCE + "common/slurm_errno.c"
PARTITION = SLURM_SOURCE + "slurmctld/job_mgr.c"
MEMORY = SLURM_SOURCE + "slurmctld/node_scheduler.c"
SBATCH = "Batch job submission failed: "

OF_SBATCH = [
    Refusal("bad-option", PARTITION, f"invalid partition specified: nope; {SBATCH}Invalid partition name specified"),
    Refusal("bad-option", ERRNO, SBATCH + "No partition specified or system default partition"),
    Refusal("bad-option", ERRNO, SBATCH + "Invalid account or account/partition combination specified"),
    Refusal("bad-option", ERRNO, SBATCH + "Invalid qos specification"),
    Refusal("bad-option", ERRNO, SBATCH + "Invalid generic resource (gres) specification"),
    Refusal("bad-option", ERRNO, SBATCH + "Invalid feature specification"),
    Refusal("bad-option", ERRNO, SBATCH + "Requested reservation is invalid"),
    Refusal("bad-option", ERRNO, SBATCH + "Node count specification invalid"),
    Refusal("quota", ERRNO, "AssocMaxSubmitJobLimit; " + SBATCH + "Job violates accounting/QOS policy (job submit"
            " limit, user's size and/or time limits)"),
    Refusal("quota", ERRNO, SBATCH + "MaxJobCount limit reached"),
    Refusal("queue-limit", ERRNO, SBATCH + "Requested time limit is invalid (missing or exceeds some limit)"),
    Refusal("queue-limit", ERRNO, SBATCH + "More processors requested than permitted"),
    Refusal("queue-limit", ERRNO, SBATCH + "Required partition not available (inactive or drain)"),
    Refusal("queue-limit", ERRNO, SBATCH + "System submissions disabled"),
    Refusal("unschedulable", ERRNO, SBATCH + "Requested node configuration is not available"),
    Refusal("unschedulable", MEMORY, "Memory specification can not be satisfied; " + SBATCH
            + "Requested node configuration is not available"),
    Refusal("access-denied", ERRNO, SBATCH + "User's group not permitted to use this partition"),
    Refusal("access-denied", ERRNO, SBATCH + "Access/permission denied"),
    Refusal("dependency", ERRNO, SBATCH + "Job dependency problem"),
    Refusal("bad-option", INVENTED, "invalid partition specified: QOSMaxtime; " + SBATCH + "Invalid partition name specified"),
    Refusal("unknown", ERRNO, SBATCH + "Unspecified error"),
    Refusal("unknown", INVENTED, SBATCH + "A reason of tomorrow"),
]  # fmt: skip


@pytest.mark.parametrize("case", OF_SBATCH, ids=lambda case: case.words[-30:])
def test_sbatch(case: Refusal) -> None:
    check(case, JobStartError(f"sbatch refused the job: {case.words}"), SLURM)


# -- LSF ----------------------------------------------------------------------------------------

LSB_ERR = "https://github.com/zjma/openlava/blob/14d90dd4/lsbatch/lib/lsb.err.c"
PENDING = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=execution-about-job-states"
OVER = ". Job not submitted."

OF_BSUB = [
    Refusal("bad-option", LSB_ERR, "gpu: No such queue" + OVER),
    Refusal("bad-option", LSB_ERR, "Bad resource requirement syntax" + OVER),
    Refusal("bad-option", LSB_ERR, "Bad host name, host group name or cluster name" + OVER),
    Refusal("bad-option", LSB_ERR, "No such user/host group" + OVER),
    Refusal("bad-option", LSB_ERR, "Dependency condition syntax error" + OVER),
    Refusal("queue-limit", LSB_ERR, "gpu: Queue has been closed" + OVER),
    Refusal("queue-limit", LSB_ERR, "Queue only accepts interactive jobs" + OVER),
    Refusal("queue-limit", LSB_ERR, "Cannot exceed queue's hard limit(s)" + OVER),
    Refusal("queue-limit", LSB_ERR, "Too many processors requested" + OVER),
    Refusal("queue-limit", LSB_ERR, "Queue does not have enough per-user job slots" + OVER),
    Refusal("access-denied", LSB_ERR, "User cannot use the queue" + OVER),
    Refusal("access-denied", LSB_ERR, "User permission denied" + OVER),
    Refusal("quota", LSB_ERR, "User or one of user's groups does not have enough job slots" + OVER),
    Refusal("quota", LSB_ERR, "The destination queue has reached its job limit" + OVER),
    Refusal("unknown", LSB_ERR, "Request aborted by esub" + OVER),
    Refusal("unknown", LSB_ERR, "Master batch daemon internal error" + OVER),
    Refusal("unknown", INVENTED, "A reason of tomorrow" + OVER),
]  # fmt: skip


@pytest.mark.parametrize("case", OF_BSUB, ids=lambda case: case.words[:30])
def test_bsub(case: Refusal) -> None:
    check(case, JobStartError(f"LSF refused the job `quota-x1.0.evicted`: {case.words}"), LSF)


# -- Kubernetes and MCAD ------------------------------------------------------------------------

K8S = "https://github.com/openshift/microshift/blob/8e16b12f/deps/github.com/openshift/kubernetes/"
"""A copy of Kubernetes."""
QUOTA = K8S + "staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go"
LIMITS = K8S + "plugin/pkg/admission/limitranger/admission.go"
SECURITY = K8S + "staging/src/k8s.io/pod-security-admission/admission/admission.go"
ERRORS = K8S + "staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go"
VOLCANO = "https://github.com/volcano-sh/volcano/blob/ed72c7c8/pkg/webhooks/admission/jobs/validate/admit_job.go"
DENIED = 'admission webhook "validatejob.volcano.sh" denied the request: '
RBAC = K8S + "staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go"

OF_API_SERVERS = [
    Refusal("quota", QUOTA, 'jobs.batch "a-x1" is forbidden: exceeded quota: compute, requested: count/jobs.batch=1,'
            " used: count/jobs.batch=8, limited: count/jobs.batch=8", 403),
    Refusal("queue-limit", LIMITS, 'pods "a-x1" is forbidden: [maximum memory usage per Container is 1Gi, but limit'
            " is 2Gi]", 403),
    Refusal("access-denied", RBAC, 'jobs.batch is forbidden: User "jane" cannot create resource "jobs" in API group'
            ' "batch" in the namespace "exceeded quota"', 403),
    Refusal("access-denied", ERRORS, "Unauthorized", 401),
    Refusal("bad-option", ERRORS, 'namespaces "nope" not found', 404),
    Refusal("bad-option", SECURITY, 'pods "a" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes', 403),
    Refusal("bad-option", VOLCANO, DENIED + ' unable to find job queue: queues.scheduling.volcano.sh "nope" not found;', 400),
    Refusal("queue-limit", VOLCANO, DENIED + " can only submit job to queue with state `Open`, queue `q` status is"
            " `Closed`;", 400),
    Refusal("bad-option", VOLCANO, DENIED + " 'minAvailable' is greater than 'replicas' in task: quota, job: a;", 400),
    Refusal("bad-option", ERRORS, 'Job.batch "out-of-memory" is invalid: spec.template.spec.containers[0].name: Invalid value', 422),
    Refusal("backend-away", INVENTED, "etcdserver: leader changed", 500),
    Refusal("unknown", INVENTED, "a reason of tomorrow", 451),
]  # fmt: skip


@pytest.mark.parametrize("case", OF_API_SERVERS, ids=lambda case: case.words[:30])
def test_api_servers(case: Refusal) -> None:
    status = {"kind": "Status", "message": case.words, "details": {"name": "x"}}
    answer = Answer(case.more, {"content-type": "application/json"}, json.dumps(status).encode())
    err = api_error(Call("create", JOBS, "quota", "out-of-memory"), answer, "evicted")
    check(case, err, KUBE)


# -- AWS ----------------------------------------------------------------------------------------

ISSUES = "https://github.com/{}/issues/{}"
BOTO = "https://github.com/boto/botocore/blob/1.44.5/botocore/"
IAM = ISSUES.format("aws-samples/amazon-sagemaker-tensorflow-object-detection-api", 14)
EXPIRED = ISSUES.format("aws-samples/sample-sonic-cdk-agent", 16)

OF_AWS = [
    (BATCH, Refusal("bad-option", ISSUES.format("base2genomics/batchit", 13), "JobQueue x-job-queue not found.", "ClientException")),
    (BATCH, Refusal("bad-option", ISSUES.format("aws-samples/aws-genomics-workflows", 84),
                    "JobDefinition name nextflow does not exist or is not in ACTIVE status", "ClientException")),
    (BATCH, Refusal("access-denied", IAM, "User: arn:aws:iam::123456789012:user/mateo is not authorized to perform:"
                    " batch:SubmitJob on resource: quota", "AccessDeniedException")),
    (BATCH, Refusal("access-denied", EXPIRED, "The security token included in the request is expired", "ExpiredTokenException")),
    (BATCH, Refusal("backend-away", BOTO + "data/_retry.json", "Rate exceeded", "ThrottlingException")),
    (BATCH, Refusal("unknown", INVENTED, "a reason of tomorrow", "TomorrowException")),
    (SAGEMAKER, Refusal("quota", ISSUES.format("gabehollombe-aws/jupyter-notebooks", 1), "The account-level service limit"
                        " 'ml.p3.2xlarge for training job usage' is 0 Instances, with current utilization of 0 Instances and"
                        " a request delta of 1 Instances. Please contact AWS support to request an increase for this limit.",
                        "ResourceLimitExceeded")),
    (SAGEMAKER, Refusal("access-denied", ISSUES.format("awslabs/predictive-maintenance-using-machine-learning", 3),
                        "Could not assume role arn:aws:iam::1:role/r. Please ensure that the role exists and allows principal"
                        " 'sagemaker.amazonaws.com' to assume the role.", "ValidationException")),
    (SAGEMAKER, Refusal("image-pull", ISSUES.format("wpilibsuite/DetectCoral", 37), "Access denied for repository: wpi-cpu in"
                        " registry ID: 118451457254. Please check if your ECR repository and image exist", "ValidationException")),
    (SAGEMAKER, Refusal("image-pull", ISSUES.format("aws/amazon-sagemaker-examples", 1476), "Cannot find the requested image:",
                        "ValidationException")),
    (SAGEMAKER, Refusal("image-pull", ISSUES.format("aws/sagemaker-python-sdk", 2063), "Invalid training image. Please provide a"
                        " valid Amazon Elastic Container Registry path of the Docker image to run.", "ValidationException")),
    (SAGEMAKER, Refusal("unschedulable", ISSUES.format("aws/amazon-sagemaker-examples", 1001), "The requested resource"
                        " training-job/ml.p2.xlarge is not available in this region", "ResourceLimitExceeded")),
    (SAGEMAKER, Refusal("bad-option", INVENTED, "1 validation error detected: Value 'quota' at 'x' failed", "ValidationException")),
    (SAGEMAKER, Refusal("unknown", INVENTED, "a reason of tomorrow", "TomorrowException")),
]  # fmt: skip


class ClientError(Exception):
    """As botocore's, by which errors are known."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        about = {"RequestId": "r-1", "HTTPStatusCode": 400}
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": about}


@pytest.mark.parametrize(("rules", "case"), OF_AWS)
def test_aws(rules: Sequence[Rule], case: Refusal) -> None:
    err = translated(ClientError(case.more, case.words), "batch:SubmitJob")
    assert err is not None
    check(case, err, rules)


@pytest.mark.parametrize("rules", [BATCH, SAGEMAKER])
def test_no_credentials_for_aws(rules: Sequence[Rule]) -> None:
    class BotoCoreError(Exception):
        pass

    class NoCredentialsError(BotoCoreError):
        pass

    err = translated(NoCredentialsError("Unable to locate credentials"), "batch:SubmitJob")
    assert err is not None
    check(Refusal("access-denied", BOTO + "exceptions.py", ""), err, rules)


# -- Docker, registries, this machine -----------------------------------------------------------

PULL = "https://github.com/docker/for-win/issues/9562"
OURS = "src/torchx/schedulers/local_scheduler/_launch.py"
REAL = "recorded, Docker 20.10.24"

HERE: list[tuple[Sequence[Rule], Callable[[str], TorchXError], Refusal]] = [
    (DOCKER, InvalidInput, Refusal("image-pull", REAL, missing_image("evicted:1", "Docker cannot pull image `evicted:1`: pull"
        " access denied for evicted, repository does not exist or may require 'docker login'"))),
    (DOCKER, DockerRefused, Refusal("image-pull", PULL, "Docker cannot pull image `a:1`: manifest for a:1 not found: manifest"
        " unknown: manifest unknown")),
    (DOCKER, DockerRefused, Refusal("unschedulable", REAL, "Docker cannot start container `a`: could not select device driver"
        ' "" with capabilities: [[gpu]]')),
    (DOCKER, DockerRefused, Refusal("bad-option", REAL, "Docker cannot start container `a`: network nosuchnet not found")),
    (DOCKER, DockerRefused, Refusal("mount", REAL, 'Docker cannot create container `a`: invalid mount config for type "bind":'
        " bind source path does not exist: /nope/x")),
    (DOCKER, BackendUnavailable, Refusal("access-denied", REAL, "the Docker daemon at unix:///var/run/docker.sock cannot be"
        " reached: Permission denied; let your user talk to it")),
    (DOCKER, BackendUnavailable, Refusal("backend-away", REAL, "the Docker daemon at unix:///var/run/docker.sock cannot be"
        " reached: Connection refused; start Docker")),
    (DOCKER, DockerRefused, Refusal("unknown", INVENTED, "Docker cannot start container `oom`: a reason of tomorrow")),
    (LOCAL, JobStartError, Refusal("launch-failed", OURS, "role `quota`: the entrypoint cannot be run: `/x` does not exist")),
    (LOCAL, JobStartError, Refusal("bad-option", OURS, "role `oom`: the working directory `/x` does not exist")),
    (LOCAL, JobStartError, Refusal("quota", OURS, "the job needs 99 open files, but the limit is 9; raise it")),
    (LOCAL, JobStartError, Refusal("disk-full", OURS, "cannot make the log directory `/logs`: No space left on device")),
    (LOCAL, JobStartError, Refusal("access-denied", OURS, "cannot make the log directory `/logs`: Permission denied")),
    (LOCAL, JobStartError, Refusal("unknown", OURS, "the process that supervises the job ended early: it left no message")),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "kind", "case"), HERE)
def test_here(rules: Sequence[Rule], kind: Callable[[str], TorchXError], case: Refusal) -> None:
    check(case, kind(case.words), rules)


ALL = (SLURM, LSF, KUBE, BATCH, SAGEMAKER, DOCKER, LOCAL)


@pytest.mark.parametrize("rules", ALL)
def test_a_push_that_a_registry_refuses(rules: Sequence[Rule]) -> None:
    err = RefusedByRegistry("registry `r`: denied: requested access to the resource is denied", 403)
    check(Refusal("access-denied", PULL, ""), err, rules)


@pytest.mark.parametrize("rules", ALL)
def test_the_kind_of_an_error_tells_where_its_words_do_not(rules: Sequence[Rule]) -> None:
    ours = (
        "option `queue` of role `exceeded quota` must be one word, given: 'evicted; out of memory'"
    )
    for err, cause in (
        (BackendUnavailable("it does not answer"), "backend-away"),
        (ProgramNotFound("`sbatch` was not found"), "backend-away"),
        (InvalidInput(ours), "bad-option"),
        (NotInstalled("the package `boto3` is missing"), "launch-failed"),
        (TorchXError("no idea"), "unknown"),
    ):
        check(Refusal(cause, "src/torchx/errors.py", ""), err, rules)


def test_every_rule_says_what_to_do_or_what_it_is() -> None:
    for rules in (*ALL, COMMON_REFUSALS):
        assert rules
        for rule in rules:
            assert rule.means
            assert re.compile(rule.pattern).pattern
