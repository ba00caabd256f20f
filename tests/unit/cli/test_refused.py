"""``torchx run`` of a job that is refused: the cause in one line on stderr, and in the JSON."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_aws.server import FakeAws
from tests.fake_kube.server import FakeKube
from tests.unit.cli.terminal import on_terminal
from tests.unit.cli.test_schema import check
from tests.unit.schedulers.docker.fake_daemon import FakeDaemon
from tests.unit.schedulers.slurm.fakes import FakeSlurm
from torchx.errors import JobStartError
from torchx.runner import get_runner
from torchx.schedulers.slurm_scheduler import version
from torchx.specs import AppDef, Resource, Role

Call = Callable[..., Any]
Refused = Callable[..., dict[str, Any]]


IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/quota/out-of-memory:1"
COMPONENT = f"""
import torchx.specs as specs


def job(image: str = "{IMAGE}") -> specs.AppDef:
    resource = specs.Resource(1, 0, 64)
    role = specs.Role("evicted", image, entrypoint="true", resource=resource)
    return specs.AppDef("oom", [role])
"""


@pytest.fixture
def component(tmp_path: Path) -> str:
    """A job whose names are like causes."""
    path = tmp_path / "component.py"
    path.write_text(COMPONENT)
    return f"{path}:job"


@pytest.fixture
def refused(call: Call, component: str, caplog: pytest.LogCaptureFixture) -> Refused:
    """Runs a job that is refused, as text and as JSON; gives the JSON."""

    def run(scheduler: str, cfg: str = "", code: int = 1, image: str = "") -> dict[str, Any]:
        given = ["-s", scheduler, "--workspace", "", *(["-cfg", cfg] if cfg else [])]
        words = [*given, component, *(["--image", image] if image else [])]
        text = call("run", *words)
        assert (text.code, text.out) == (code, "")
        printed = caplog.records[-1].getMessage()
        result = call("run", "--json", *words)
        assert result.code == code
        found: dict[str, Any] = check("error", result.out)["error"]
        line = f"why: {found['cause']}: {found['summary']}"
        assert (line in printed) != (found["summary"] in printed.partition("\n")[0])
        if line in printed:
            assert printed.count("why: ") == 1
            assert [text in printed for text in found["do"]] == [True] * len(found["do"])
        return found

    return run


# -- programs of a cluster -----------------------------------------------------------------------


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    version.cache_clear()
    yield FakeSlurm(tmp_path / "bin", monkeypatch)
    version.cache_clear()


SUBMISSION = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Invalid partition name specified", "bad-option"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
         "quota"),
        ("Requested node configuration is not available", "unschedulable"),
        ("User's group not permitted to use this partition", "access-denied"),
    ],
)  # fmt: skip
def test_slurm(sbatch: FakeSlurm, refused: Refused, words: str, cause: str) -> None:
    sbatch.answer("sbatch", err=f"{SUBMISSION}{words}\n", code=1)
    sbatch.answer("sinfo", code=1)
    found = refused("slurm")
    assert (found["type"], found["cause"]) == ("JobStartError", cause)
    assert found["do"]


def test_a_program_that_is_missing(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for scheduler in ("slurm", "lsf"):
        found = refused(scheduler, f"{'jobdir' if scheduler == 'lsf' else 'job_dir'}={tmp_path}/j")
        assert (found["type"], found["cause"]) == ("ProgramNotFound", "backend-away")
        assert found["do"] == [f"torchx doctor -s {scheduler}"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("gpu: No such queue. Job not submitted.", "bad-option"),
        ("User cannot use the queue. Job not submitted.", "access-denied"),
        ("Cannot exceed queue's hard limit(s). Job not submitted.", "queue-limit"),
    ],
)
def test_lsf(sbatch: FakeSlurm, refused: Refused, words: str, cause: str, tmp_path: Path) -> None:
    sbatch.answer("bsub", err=f"{words}\n", code=255)
    sbatch.answer("bkill", code=255, err="No matching job found\n")
    found = refused("lsf", f"jobdir={tmp_path / 'jobs'}")
    assert (found["type"], found["cause"]) == ("JobStartError", cause)


# -- clusters of Kubernetes ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def running_kube() -> Iterator[FakeKube]:
    with FakeKube("--operators", "appwrapper") as kube:
        yield kube


@pytest.fixture
def kube(
    running_kube: FakeKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeKube]:
    running_kube.reset()
    monkeypatch.setenv("KUBECONFIG", running_kube.kubeconfig(tmp_path / "kubeconfig"))
    yield running_kube
    running_kube.no_faults()


@pytest.mark.parametrize("scheduler", ["kubernetes", "kubernetes_mcad"])
@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        (403, 'jobs.batch "a" is forbidden: exceeded quota: compute, requested: pods=1, used:'
              " pods=8, limited: pods=8", "quota"),
        (403, 'x is forbidden: User "jane" cannot create resource "x" in API group "y"',
         "access-denied"),
        (401, "Unauthorized", "access-denied"),
    ],
)  # fmt: skip
def test_kubernetes(
    kube: FakeKube, refused: Refused, scheduler: str, code: int, words: str, cause: str
) -> None:
    kube.fault("status", "^POST ", code=code, message=words, times=-1)
    found = refused(scheduler)
    assert found["cause"] == cause


def test_a_namespace_that_is_not_there(kube: FakeKube, refused: Refused) -> None:
    found = refused("kubernetes", "namespace=nope")
    assert found["summary"] == "the namespace `nope` is not there"


def test_no_kubeconfig(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert refused("kubernetes", code=2)["cause"] == "backend-away"


# -- AWS -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        ("ClientException", "JobQueue nope not found.", "bad-option"),
        ("ExpiredTokenException", "The security token included in the request is expired",
         "access-denied"),
        ("AccessDeniedException", "User: x is not authorized to perform: batch:SubmitJob",
         "access-denied"),
    ],
)  # fmt: skip
def test_aws_batch(aws: FakeAws, refused: Refused, code: str, words: str, cause: str) -> None:
    with aws.faulty("refuse", "^batch:", code=code, message=words, times=-1):
        assert refused("aws_batch", "queue=queue", code=2)["cause"] == cause


def test_no_credentials(aws: FakeAws, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert refused("aws_batch", "queue=queue", code=2)["cause"] == "access-denied"


def test_aws_sagemaker(aws: FakeAws, refused: Refused) -> None:
    words = "The account-level service limit 'ml.p3.2xlarge for training job usage' is 0 Instances"
    cfg = "role=arn:aws:iam::123456789012:role/t,launch=container,output_path=s3://results/out"
    with aws.faulty(
        "refuse", "CreateTrainingJob", code="ResourceLimitExceeded", message=words, times=-1
    ):
        assert refused("aws_sagemaker", cfg, code=2)["cause"] == "quota"


# -- this machine --------------------------------------------------------------------------------


def test_a_daemon_that_is_away(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    found = refused("local_docker")
    assert (found["cause"], found["do"]) == ("backend-away", ["torchx doctor -s local_docker"])


DENIED = (
    "pull access denied for evicted, repository does not exist or may require 'docker login':"
    " denied: requested access to the resource is denied"
)


def test_an_image_that_is_not_there(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    routes = {
        ("GET", "/images/"): (404, {"message": "No such image: evicted:latest"}),
        ("POST", "/images/create"): (404, {"message": DENIED}),
    }
    with FakeDaemon(routes, tmp_path / "docker.sock") as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        found = refused("local_docker", image="evicted:latest")
    assert found["cause"] == "image-pull"


def test_on_a_terminal_the_cause_and_what_to_do_stand_below_the_error(tmp_path: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    screen = on_terminal("run", "-s", "local_docker", "--workspace", "", "utils.echo", env=env)
    assert screen.code == 1
    assert screen.lines[0].startswith("✗ the Docker daemon at")
    assert screen.lines[-2:] == [
        "  backend-away: `local_docker` cannot be reached",
        "  → torchx doctor -s local_docker",
    ]


def test_a_program_that_is_not_there(call: Call) -> None:
    """It has its cause in JSON; on stderr the message has said it."""
    result = call("run", "--json", "--workspace", "", "utils.binary", "--entrypoint", "nope")
    error = check("error", result.out)["error"]
    assert (result.code, error["cause"]) == (1, "launch-failed")


def test_an_option_that_is_wrong_is_said_once(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    result = call("run", "--json", "-s", "slurm", "-cfg", "time=soon", "utils.echo")
    error = check("error", result.out)["error"]
    assert (result.code, error["cause"]) == (2, "bad-option")
    assert "why:" not in caplog.text


def test_who_calls_the_runner_gets_the_cause_as_well(sbatch: FakeSlurm, tmp_path: Path) -> None:
    sbatch.answer("sbatch", err=f"{SUBMISSION}Invalid qos specification\n", code=1)
    sbatch.answer("sinfo", code=1)
    app = AppDef("a", [Role("r", "", entrypoint="true", resource=Resource(1, 0, 64))])
    with get_runner() as runner, pytest.raises(JobStartError) as caught:
        runner.run(app, "slurm", {"job_dir": str(tmp_path / "jobs")})
    assert caught.value.explanation is not None
    assert caught.value.explanation.cause.value == "bad-option"


def test_other_errors_have_no_cause(call: Call) -> None:
    error = json.loads(call("status", "--json", "local_cwd://torchx/nope").out)["error"]
    assert "cause" not in error
