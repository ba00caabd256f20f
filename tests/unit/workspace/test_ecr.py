"""Log-ins to ECR: AWS gives them where none is configured, for both builders of images."""

import base64
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_aws.server import FakeAws
from torchx.errors import InvalidInput, NotInstalled
from torchx.workspace._ecr import region_of
from torchx.workspace._registry._auth import Credentials, find_credentials
from torchx.workspace._registry._build import find_base
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from .fake_daemon import BUILT_ID, FakeDaemon, running
from .registry.fake_registry import FakeRegistry

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
TOKEN = "token-of-ecr"
DONE: list[dict[str, Any]] = [{"aux": {"Tag": "t", "Digest": "sha256:" + "f" * 64, "Size": 1}}]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's configuration, which is not there yet."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def log_in(config: Path, host: str) -> None:
    auth = base64.b64encode(b"me:configured").decode()
    config.write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("123456789012.dkr-ecr.us-east-1.on.aws", "us-east-1"),
        ("123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn", "cn-north-1"),
        ("123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"),
        ("public.ecr.aws", None),
        ("12.dkr.ecr.eu-west-1.amazonaws.com", None),
        (f"{HOST}.example.com", None),
        ("example.com", None),
    ],
)
def test_hosts_of_all_partitions_are_known(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_aws_is_asked_in_the_region_of_the_registry(
    aws: FakeAws, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert find_credentials(HOST) == Credentials("AWS", TOKEN)
    (request,) = aws.requests()
    assert (request["call"], request["region"]) == ("ecr:GetAuthorizationToken", "eu-west-1")


def test_a_log_in_that_is_configured_is_used(aws: FakeAws, config: Path) -> None:
    log_in(config, HOST)
    assert find_credentials(HOST) == Credentials("me", "configured")
    assert find_credentials("example.com") is None
    assert aws.calls() == []


def test_without_boto3_it_is_told_what_to_do(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setenv("AWS_PROFILE_OF_TEST", "none")  # a session that is there is not used
    with pytest.raises(NotInstalled, match=r"`docker login`.*pip install 'torchx\[aws\]'"):
        find_credentials(HOST)


def test_what_aws_refuses_is_told_in_its_words(aws: FakeAws, config: Path) -> None:
    refused = pytest.raises(InvalidInput, match=r"not authorized.*request id fake-")
    with aws.faulty("denied", "ecr"), refused:
        find_credentials(HOST)


@pytest.mark.parametrize("configured", [False, True])
def test_a_docker_daemon_gets_the_token(
    aws: FakeAws, config: Path, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    if configured:
        log_in(config, HOST)
    daemon = FakeDaemon()
    daemon.images[BUILT_ID] = BUILT_ID
    daemon.pushes = [DONE]
    with running(daemon) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        builder = DockerWorkspaceMixin()
        builder.push_images({BUILT_ID: (f"{HOST}/team/img", "t")})
        builder.close()
    login = json.loads(base64.urlsafe_b64decode(daemon.logins[-1]))
    expected = ("me", "configured") if configured else ("AWS", TOKEN)
    assert (login["username"], login["password"]) == expected
    assert aws.calls() == ([] if configured else ["ecr:GetAuthorizationToken"])


def test_the_registry_builder_logs_in_with_the_token(
    aws: FakeAws, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = FakeRegistry()
    stop = registry.serve()
    try:
        registry.users = {"AWS": TOKEN}
        registry.add_image("team/base", "1")
        monkeypatch.setenv("TORCHX_INSECURE_REGISTRIES", HOST)
        name, _, port = registry.host.partition(":")
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (name, int(port)))]
        real = socket.getaddrinfo

        def resolve(host: str, *args: Any, **more: Any) -> Any:
            return found if host == HOST else real(host, *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert find_base(f"{HOST}/team/base:1") is not None
    finally:
        stop()
    assert aws.calls() == ["ecr:GetAuthorizationToken"]
