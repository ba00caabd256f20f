"""The distribution API against a registry with faults."""

import io
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from urllib3 import Retry

from torchx.errors import BackendUnavailable, InvalidInput, TorchXError, UnexpectedReply
from torchx.workspace._registry._blobs import BytesBlob, FileBlob, RemoteBlob
from torchx.workspace._registry._client import Registry
from torchx.workspace._registry._connection import is_insecure
from torchx.workspace._registry._reference import parse_repository

from .conftest import AT_ONCE
from .fake_registry import FakeRegistry, Fault, digest_of

LARGE = os.urandom(3 << 20)


def connect(fake: FakeRegistry, *, push: bool = True, **more: object) -> Registry:
    repository = parse_repository(f"{fake.host}/team/out")
    return Registry(repository, push=push, retries=AT_ONCE, **more)  # type: ignore[arg-type]


def upload(fake: FakeRegistry, data: bytes, mount_from: str | None = None) -> None:
    with connect(fake) as registry:
        registry.upload(BytesBlob(data), mount_from)
    assert fake.blobs["team/out"][digest_of(data)] == data
    assert not fake.uploads


def test_a_small_blob_goes_in_one_request(registry: FakeRegistry) -> None:
    upload(registry, b"small")
    assert [r.split()[0] for r in registry.requests] == ["POST", "PUT"]


def test_a_large_blob_goes_in_a_stream(registry: FakeRegistry) -> None:
    upload(registry, LARGE)
    assert [r.split()[0] for r in registry.requests] == ["POST", "PATCH", "PUT"]


def test_an_interrupted_upload_goes_on_where_it_stopped(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("PATCH", "uploads", after=1_000_000, times=2))
    upload(registry, LARGE)
    ranges = [h.get("Content-Range") for h in registry.headers if "Content-Range" in h]
    end = len(LARGE) - 1
    assert ranges == [f"1000000-{end}", f"2000000-{end}"]
    assert len(registry.did("POST")) == 1


def test_a_registry_that_forgot_an_upload_gets_it_again(registry: FakeRegistry) -> None:
    registry.forgetful = True
    registry.faults.append(Fault("PATCH", "uploads", after=1_000_000))
    upload(registry, LARGE)
    assert len(registry.did("POST")) == 2


def test_a_busy_registry_is_asked_for_how_far_it_came(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("PATCH", "uploads", status=503, times=2))
    upload(registry, LARGE)
    assert len(registry.did("GET", "uploads")) == 2


def test_a_lost_answer_to_the_end_of_an_upload_is_no_failure(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("PUT", "uploads", times=2))
    upload(registry, LARGE)
    upload(registry, b"small")


def test_a_blob_too_large_for_one_request_goes_in_pieces(registry: FakeRegistry) -> None:
    registry.most_body = 5 << 20
    data = os.urandom(12 << 20)
    upload(registry, data)
    assert len(registry.did("PATCH")) == 1 + 3


def test_an_upload_that_never_gets_through_is_given_up_and_removed(
    registry: FakeRegistry,
) -> None:
    registry.faults.append(Fault("PATCH", "uploads", status=503, times=1000))
    with connect(registry) as client, pytest.raises(BackendUnavailable, match="503"):
        client.upload(BytesBlob(LARGE))
    assert registry.did("DELETE")
    assert not registry.uploads
    assert not registry.blobs


def test_a_registry_that_always_forgets_is_given_up(registry: FakeRegistry) -> None:
    registry.forgetful = True
    registry.faults.append(Fault("PATCH", "uploads", after=10, times=1000))
    with connect(registry) as client, pytest.raises(BackendUnavailable, match="keeps losing"):
        client.upload(BytesBlob(LARGE))


def test_a_blob_is_mounted_where_the_registry_can(registry: FakeRegistry) -> None:
    registry.add_blob("team/base", LARGE)
    upload(registry, LARGE, "team/base")
    assert not registry.did("PATCH")


def test_a_refused_mount_becomes_an_upload(registry: FakeRegistry) -> None:
    registry.mounts = False
    registry.add_blob("team/base", LARGE)
    upload(registry, LARGE, "team/base")
    assert len(registry.did("POST")) == 1
    assert len(registry.did("PATCH")) == 1


def test_a_blob_of_another_registry_is_copied_also_if_both_ends_break(
    registry: FakeRegistry,
) -> None:
    source = FakeRegistry()
    stop = source.serve()
    try:
        digest = source.add_blob("other/base", LARGE)
        source.faults.append(Fault("GET", "blobs", cut_reply=1_500_000))
        registry.faults.append(Fault("PATCH", "uploads", after=1_000_000, then=1))
        repository = parse_repository(f"{source.host}/other/base")
        with Registry(repository, retries=AT_ONCE) as other, connect(registry) as client:
            client.upload(RemoteBlob(other, digest, len(LARGE)))
    finally:
        stop()
    assert registry.blobs["team/out"][digest] == LARGE
    assert any("Range" in headers for headers in source.headers)


def test_an_upload_that_an_interruption_spoilt_is_started_again(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("PATCH", "uploads", after=1_000_000, spoil=True))
    with connect(registry) as client:
        client.upload(BytesBlob(LARGE))
    assert registry.blobs["team/out"] == {digest_of(LARGE): LARGE}
    assert len(registry.did("POST", "uploads")) == 2


def test_a_copy_that_is_not_what_its_digest_says_is_refused(registry: FakeRegistry) -> None:
    source = FakeRegistry()
    stop = source.serve()
    try:
        digest = digest_of(LARGE)
        source.blobs["other/base"] = {digest: bytes(len(LARGE))}
        repository = parse_repository(f"{source.host}/other/base")
        with (
            Registry(repository, retries=AT_ONCE) as other,
            connect(registry) as client,
            pytest.raises(InvalidInput, match="DIGEST_INVALID"),
        ):
            client.upload(RemoteBlob(other, digest, len(LARGE)))
    finally:
        stop()


def test_a_file_is_uploaded_from_disk(registry: FakeRegistry, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(LARGE)
    registry.faults.append(Fault("PATCH", "uploads", after=1_000_001))
    with connect(registry) as client:
        client.upload(FileBlob(str(path), digest_of(LARGE), len(LARGE)))
    assert registry.blobs["team/out"][digest_of(LARGE)] == LARGE


def test_a_file_that_is_gone_or_cut_off_is_named(registry: FakeRegistry, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    with connect(registry) as client:
        with pytest.raises(BackendUnavailable, match="build the image again"):
            client.upload(FileBlob(str(path), digest_of(LARGE), len(LARGE)))
        path.write_bytes(LARGE[:-1])
        with pytest.raises(BackendUnavailable, match="truncated"):
            client.upload(FileBlob(str(path), digest_of(LARGE), len(LARGE)))
    assert not registry.uploads


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_transient_refusal_is_tried_again(registry: FakeRegistry, status: int) -> None:
    digest = registry.add_image("team/out")
    registry.faults.append(Fault("HEAD", "manifests", status, times=3))
    with connect(registry) as client:
        assert client.find_manifest("1") == digest


def test_a_dropped_connection_is_tried_again(registry: FakeRegistry) -> None:
    digest = registry.add_image("team/out")
    registry.faults.append(Fault("GET", "manifests", times=2))
    registry.faults.append(Fault("GET", "manifests", cut_reply=10, times=2))
    with connect(registry) as client:
        assert client.get_manifest("1").digest == digest


def test_retry_after_is_heeded_up_to_a_limit(registry: FakeRegistry) -> None:
    digest = registry.add_image("team/out")
    body = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}'
    registry.faults.append(Fault("HEAD", "manifests", 429, {"Retry-After": "0"}, times=2))
    with connect(registry) as client:
        assert client.find_manifest("1") == digest
        registry.faults.append(Fault("GET", "manifests", 429, {"Retry-After": "3600"}, body))
        with pytest.raises(BackendUnavailable, match="TOOMANYREQUESTS: slow down"):
            client.get_manifest("1")


def test_what_stays_busy_is_given_up_with_its_own_words(registry: FakeRegistry) -> None:
    body = b'{"errors":[{"code":"UNAVAILABLE","message":"maintenance \\u001b[31m till 5"}]}'
    registry.faults.append(Fault("GET", "manifests", 503, body=body, times=100))
    with connect(registry) as client, pytest.raises(BackendUnavailable) as caught:
        client.get_manifest("1")
    message = str(caught.value)
    assert registry.host in message
    assert "503 Service Unavailable: UNAVAILABLE: maintenance" in message
    assert "\x1b" not in message
    assert len(registry.requests) == 5


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, InvalidInput, "docker login"),
        (403, InvalidInput, "docker login"),
        (404, InvalidInput, "team/out:1"),
        (418, UnexpectedReply, "teapot"),
    ],
)
def test_a_refusal_is_not_tried_again(
    registry: FakeRegistry, status: int, kind: type[TorchXError], words: str
) -> None:
    body = b'{"errors":[{"code":"X","message":"short and stout teapot"}]}'
    registry.faults.append(Fault("GET", "manifests", status, body=body, times=100))
    with connect(registry) as client, pytest.raises(kind, match=words) as caught:
        client.get_manifest("1")
    assert "short and stout" in str(caught.value)
    assert len(registry.requests) == 1


def test_a_page_of_a_proxy_is_not_shown(registry: FakeRegistry) -> None:
    body = b"<html><h1>Gateway"
    registry.faults.append(Fault("GET", "manifests", 403, body=body))
    with connect(registry) as client, pytest.raises(InvalidInput) as caught:
        client.get_manifest("1")
    assert "html" not in str(caught.value)


def test_a_manifest_that_is_not_what_its_digest_says_is_refused(registry: FakeRegistry) -> None:
    digest = registry.add_image("team/out")
    media_type, data = registry.manifests["team/out", digest]
    registry.manifests["team/out", digest] = (media_type, data + b" ")
    with connect(registry) as client, pytest.raises(UnexpectedReply, match=digest):
        client.get_manifest(digest)


def test_a_blob_that_is_not_what_its_digest_says_is_refused(registry: FakeRegistry) -> None:
    registry.blobs["team/out"] = {digest_of(b"x"): b"y"}
    with connect(registry) as client, pytest.raises(UnexpectedReply, match="something else"):
        client.get_blob(digest_of(b"x"), 100)


def test_a_longer_answer_than_expected_is_refused(registry: FakeRegistry) -> None:
    digest = registry.add_blob("team/out", bytes(1000))
    with connect(registry) as client:
        with pytest.raises(UnexpectedReply, match="more than"):
            client.get_blob(digest, 100)
        assert client.has_blob(digest)  # the connection is not left half read


def test_basic_log_in(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    registry.users["me"] = "secret-1"
    docker_login(registry.host, "me", "secret-1")
    upload(registry, LARGE)
    docker_login(registry.host, "me", "wrong-1")
    with pytest.raises(InvalidInput, match="docker login") as caught:
        upload(registry, b"x")
    assert "wrong-1" not in str(caught.value)


def test_without_log_in_the_message_says_so(registry: FakeRegistry) -> None:
    registry.users["me"] = "secret-1"
    with connect(registry) as client, pytest.raises(InvalidInput, match="is not there") as caught:
        client.find_manifest("1")
    assert f"docker login {registry.host}" in str(caught.value)


def test_token_log_in_asks_for_what_is_needed(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    registry.users["me"] = "secret-1"
    registry.bearer = True
    docker_login(registry.host, "me", "secret-1")
    upload(registry, LARGE)
    assert list(registry.tokens.values()) == [["repository:team/out:pull,push"]]
    with connect(registry, mount_from="team/base") as client:
        client.find_manifest("1")
    scopes = [*registry.tokens.values()]
    assert scopes[1] == [
        "repository:team/out:pull,push",
        "repository:team/base:pull",
    ]


def test_a_public_image_needs_no_log_in(registry: FakeRegistry) -> None:
    registry.bearer = True
    digest = registry.add_image("team/out")
    with connect(registry, push=False) as client:
        assert client.find_manifest("1") == digest


def test_a_token_that_ends_is_renewed(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    registry.users["me"] = "secret-1"
    registry.bearer, registry.token_lifetime = True, 1
    docker_login(registry.host, "me", "secret-1")
    upload(registry, LARGE)
    assert len(registry.tokens) == 3


def test_an_identity_token_is_exchanged(registry: FakeRegistry, docker_config: Path) -> None:
    registry.users["me"] = "secret-1"
    registry.bearer = True
    registry.refresh_tokens.add("refresh-1")
    docker_config.write_text(
        f'{{"auths": {{"{registry.host}": {{"identitytoken": "refresh-1"}}}}}}'
    )
    upload(registry, b"x")
    assert registry.did("POST", "/token")


def test_a_wrong_password_at_the_token_server_says_its_words(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    registry.users["me"] = "secret-1"
    registry.bearer = True
    docker_login(registry.host, "me", "wrong-1")
    with pytest.raises(InvalidInput, match="incorrect username or password"):
        upload(registry, b"x")


def test_a_denied_right_says_so(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    registry.users["me"] = "secret-1"
    registry.bearer = True
    docker_login(registry.host, "me", "secret-1")
    with connect(registry, push=False) as client, pytest.raises(InvalidInput, match="DENIED"):
        client.upload(BytesBlob(b"x"))


def test_a_password_does_not_go_unencrypted_to_another_host(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    docker_login(registry.host, "me", "secret-1")
    challenge = {"WWW-Authenticate": 'Bearer realm="http://example.invalid/token"'}
    registry.faults.append(Fault("HEAD", "manifests", 401, challenge))
    with connect(registry) as client, pytest.raises(InvalidInput, match="not encrypted"):
        client.find_manifest("1")


def test_a_redirect_is_followed_without_the_log_in(
    registry: FakeRegistry, docker_login: Callable[[str, str, str], None]
) -> None:
    storage = FakeRegistry()
    stop = storage.serve()
    try:
        registry.users["me"] = "secret-1"
        docker_login(registry.host, "me", "secret-1")
        digest = storage.add_blob("x", b"content")
        to = {"Location": f"http://{storage.host}/v2/x/blobs/{digest}"}
        registry.faults.append(Fault("GET", "blobs", 307, to))
        with connect(registry) as client:
            assert client.get_blob(digest, 100) == b"content"
    finally:
        stop()
    assert all("Authorization" not in headers for headers in storage.headers)


def test_redirects_in_a_circle_end(registry: FakeRegistry) -> None:
    to = {"Location": "/v2/team/out/blobs/x"}
    registry.faults.append(Fault("GET", "blobs", 307, to, times=100))
    with connect(registry) as client, pytest.raises(UnexpectedReply, match="too many redirects"):
        client.get_blob(digest_of(b""), 100)


@pytest.mark.parametrize("address", ["http://[bad", "http://h:port/x", "/v2/\xfc"])
@pytest.mark.parametrize("request_", [("GET", "manifests", 302), ("POST", "uploads", 202)])
def test_an_address_that_is_no_url_is_named(
    registry: FakeRegistry, address: str, request_: tuple[str, str, int]
) -> None:
    method, path, status = request_
    registry.faults.append(Fault(method, path, status, {"Location": address}, times=9))
    with connect(registry) as client, pytest.raises(UnexpectedReply, match="registry") as caught:
        client.upload(BytesBlob(b"x")) if method == "POST" else client.get_manifest("1")
    assert address in str(caught.value)


def test_a_token_server_that_is_no_url_is_named(registry: FakeRegistry) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="https://[bad/token"'}
    registry.faults.append(Fault("GET", "manifests", 401, challenge, times=9))
    with connect(registry) as client, pytest.raises(UnexpectedReply, match=r"https://\[bad/token"):
        client.get_manifest("1")


def test_a_name_that_no_host_can_have_is_one_clear_line() -> None:
    repository = parse_repository(f"{'a' * 64}.com/x")
    with (
        Registry(repository, retries=AT_ONCE) as client,
        pytest.raises(BackendUnavailable, match="cannot be reached"),
    ):
        client.find_manifest("1")


@pytest.mark.parametrize("proxy", ["http://[bad", "http://h:port", "http://"])
def test_a_proxy_that_is_no_url_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with (
        Registry(parse_repository("example.com/x"), retries=AT_ONCE) as client,
        pytest.raises(InvalidInput, match="write http://host:port"),
    ):
        client.find_manifest("1")


def test_a_connection_is_used_again_and_renewed_when_it_was_closed(registry: FakeRegistry) -> None:
    digest = registry.add_image("team/out")
    with connect(registry) as client:
        assert client.find_manifest("1") == digest
        registry.faults.append(Fault("HEAD", "manifests"))
        assert client.find_manifest("1") == digest


def test_no_registry_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"localhost:{taken.getsockname()[1]}"
        with (
            Registry(parse_repository(f"{host}/x"), retries=AT_ONCE) as client,
            pytest.raises(BackendUnavailable, match="cannot be reached") as caught,
        ):
            client.find_manifest("1")
    assert host in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_host_that_does_not_exist_is_one_clear_line() -> None:
    quick = Retry(1)
    with (
        Registry(parse_repository("registry.invalid/x"), retries=quick) as client,
        pytest.raises(BackendUnavailable, match=r"registry\.invalid"),
    ):
        client.find_manifest("1")


def test_only_this_machine_and_named_hosts_are_spoken_to_without_encryption() -> None:
    for host in ("localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"):
        assert is_insecure(host, {})
    for host in ("example.com", "127.0.0.1.example.com", "localhost.example.com", "10.0.0.1"):
        assert not is_insecure(host, {})
    named = {"TORCHX_INSECURE_REGISTRIES": "a.io:5000, b.io"}
    assert is_insecure("a.io:5000", named)
    assert is_insecure("b.io:1", named)
    assert not is_insecure("a.io", named)


def test_reading_a_blob_starts_again_where_the_connection_breaks(registry: FakeRegistry) -> None:
    digest = registry.add_blob("team/out", LARGE)
    registry.faults.append(Fault("GET", "blobs", cut_reply=1000))
    with connect(registry) as client:
        assert client.read_blob(digest, lambda blob: _all(blob)) == LARGE


def _all(blob: io.BufferedIOBase) -> bytes:  # type: ignore[type-arg]
    out = b""
    while block := blob.read(1 << 16):
        out += block
    return out


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_registry_on_this_machine_may_speak_https(registry: FakeRegistry, method: str) -> None:
    body = b"Client sent an HTTP request to an HTTPS server."
    registry.faults.append(Fault(method, "manifests", 400, body=body))
    with connect(registry) as client, pytest.raises(BackendUnavailable, match="connection broke"):
        (client.find_manifest if method == "HEAD" else client.get_manifest)("1")
    assert len(registry.requests) == 1  # this one only says that it does
