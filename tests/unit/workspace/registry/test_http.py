"""TLS, proxies and redirects, and what ends or is missing on the way to a registry."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchx.errors import BackendUnavailable, InvalidInput
from torchx.workspace._registry._blobs import BytesBlob
from torchx.workspace._registry._client import Registry
from torchx.workspace._registry._connection import is_insecure
from torchx.workspace._registry._reference import parse_repository

from .conftest import AT_ONCE
from .fake_registry import FakeRegistry, Fault

LARGE = os.urandom(3 << 20)


def connect(fake: FakeRegistry) -> Registry:
    return Registry(parse_repository(f"{fake.host}/team/out"), push=True, retries=AT_ONCE)


def make_certificate(folder: Path, name: str) -> ssl.SSLContext:
    """What a server needs for TLS under a name; its certificate is `ca.crt` in the folder."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, so there is no certificate to test with")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", "key.pem", "-out", "ca.crt", "-subj", "/CN=registry"),
            *("-addext", f"subjectAltName=DNS:{name}"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return context


@pytest.fixture
def tls_registry(tmp_path: Path) -> Iterator[FakeRegistry]:
    """A registry with TLS under this machine's own name; its certificate is `ca.crt`."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as err:
        pytest.skip(f"the name of this machine, {name}, has no address: {err}")
    if is_insecure(name):
        pytest.skip(f"this machine is called {name}, which is never spoken to with TLS")
    fake = FakeRegistry()
    stop = fake.serve(address, make_certificate(tmp_path, name))
    fake.host = fake.host.replace("localhost", name)
    yield fake
    stop()


def trust(fake: FakeRegistry, certificate: Path) -> Path:
    folder = Path(os.environ["HOME"]) / ".config/docker/certs.d" / fake.host
    folder.mkdir(parents=True)
    return Path(shutil.copy(certificate, folder / "ca.crt"))


def test_a_certificate_is_trusted_as_docker_does(
    tls_registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    digest = tls_registry.add_image("team/out")
    with connect(tls_registry) as client, pytest.raises(BackendUnavailable, match="not trusted"):
        client.find_manifest("1")
    path = trust(tls_registry, tmp_path / "ca.crt")
    with connect(tls_registry) as client:
        assert client.find_manifest("1") == digest
    path.write_text("no certificate")
    with connect(tls_registry) as client, pytest.raises(InvalidInput, match=r"ca\.crt"):
        client.find_manifest("1")


def test_a_proxy_is_used_as_the_environment_says(
    tls_registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = tls_registry.add_image("team/out")
    trust(tls_registry, tmp_path / "ca.crt")
    proxy = socket.create_server(("127.0.0.1", 0))
    asked: list[str] = []

    def refuse() -> None:
        client, _ = proxy.accept()
        with client:
            head = b""
            while b"\r\n\r\n" not in head and (block := client.recv(1 << 16)):
                head += block
            asked.append(head.decode())
            client.sendall(b"HTTP/1.1 403 Not here\r\n\r\n")

    thread = threading.Thread(target=refuse)
    thread.start()
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.getsockname()[1]}")
    with connect(tls_registry) as client, pytest.raises(BackendUnavailable, match="403 Not here"):
        client.find_manifest("1")
    thread.join()
    proxy.close()
    assert asked[0].startswith(f"CONNECT {tls_registry.host} ")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in asked[0]
    monkeypatch.setenv("NO_PROXY", socket.gethostname())
    with connect(tls_registry) as client:
        assert client.find_manifest("1") == digest


def test_a_redirect_does_not_lead_out_of_tls(
    tls_registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    trust(tls_registry, tmp_path / "ca.crt")
    to = {"Location": "http://example.com/x"}
    tls_registry.faults.append(Fault("GET", "manifests", 307, to))
    with connect(tls_registry) as client, pytest.raises(InvalidInput, match="is not encrypted"):
        client.get_manifest("1")


def test_a_log_in_stays_if_the_registry_calls_itself_by_the_other_scheme(
    tls_registry: FakeRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    docker_login: Callable[[str, str, str], None],
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    trust(tls_registry, tmp_path / "ca.crt")
    tls_registry.users["me"] = "secret-1"
    docker_login(tls_registry.host, "me", "secret-1")
    digest = tls_registry.add_image("team/out")
    # as it does behind a proxy that ends TLS
    to = {"Location": f"http://{tls_registry.host}/v2/team/out/manifests/{digest}"}
    tls_registry.faults.append(Fault("GET", "manifests", 307, to))
    with connect(tls_registry) as client:
        assert client.get_manifest("1").digest == digest


def test_a_storage_on_this_machine_needs_no_trusted_certificate(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    storage = FakeRegistry()
    stop = storage.serve(tls=make_certificate(tmp_path, "somewhere"))
    try:
        digest = storage.add_blob("x", b"content")
        to = {"Location": f"https://{storage.host}/v2/x/blobs/{digest}"}
        registry.faults.append(Fault("GET", "blobs", 307, to))
        with connect(registry) as client:
            assert client.get_blob(digest, 100) == b"content"  # and nothing is warned of
    finally:
        stop()


@pytest.mark.parametrize("status", [302, 307])
def test_an_upload_is_sent_again_to_where_it_is_redirected(
    registry: FakeRegistry, status: int
) -> None:
    class Counting(BytesBlob):
        def read_from(self, offset: int) -> Iterator[bytes]:
            reads.append(offset)
            return super().read_from(offset)

    reads: list[int] = []
    with connect(registry) as client:
        registry.faults.append(Fault("PATCH", "uploads", status, {"Location": "?again=1"}))
        client.upload(Counting(LARGE))
    assert reads == [0, 0]
    assert LARGE in registry.blobs["team/out"].values()


def test_an_abort_ends_a_thread_that_waits_for_an_answer(registry: FakeRegistry) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    repository = parse_repository(f"localhost:{silent.getsockname()[1]}/x")
    failures: list[BaseException] = []
    with Registry(repository) as client:

        def ask() -> None:
            try:
                client.find_manifest("1")
            except BackendUnavailable as err:
                failures.append(err)

        thread = threading.Thread(target=ask)
        thread.start()
        accepted, _ = silent.accept()
        with accepted, silent:
            accepted.recv(1)  # the request is on its way, and is never answered
            client.abort()
            thread.join()
    assert "stopped" in str(failures[0])


def test_an_abort_ends_a_pause_between_two_tries(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("HEAD", "manifests", 503, {"Retry-After": "100"}))
    with connect(registry) as client:
        threading.Thread(target=lambda: (_until(lambda: registry.requests), client.abort())).start()
        with pytest.raises(BackendUnavailable, match="stopped"):
            client.find_manifest("1")


def _until(happened: Callable[[], object]) -> None:
    while not happened():
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    "content",
    ["raise ModuleNotFoundError('No module named urllib3', name='urllib3')", "__version__ = '1'"],
)
def test_without_urllib3_or_with_an_old_one_the_extra_is_named(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "urllib3.py").write_text(content)
    script = (
        "from torchx.errors import NotInstalled\n"
        "from torchx.workspace._registry._build import find_base, push_image\n"
        "from torchx.workspace._registry._plan import find_plan\n"
        "try:\n    find_base('localhost:1/x')\nexcept NotInstalled as err:\n    print(err)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == (
        "images without a daemon need urllib3 2 or newer; install it with: "
        "pip install 'torchx[registry]'\n"
    )
