"""A real Docker daemon, where one answers."""

import io
import os
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from typing import Any

import docker.errors
import pytest

from torchx._docker import connect
from torchx.errors import BackendUnavailable

BASE = "torchx-test/workspace-base"


@pytest.fixture(scope="session")
def daemon() -> Iterator[Any]:
    """A client of the daemon; a client program must be there as well."""
    try:
        client = connect()
    except BackendUnavailable as err:
        pytest.skip(str(err))
    if shutil.which("docker") is None:
        client.close()
        pytest.skip("there is no `docker` program")
    yield client
    client.close()


@pytest.fixture(scope="session")
def base(daemon: Any) -> Iterator[str]:
    """The name of an image that holds nothing but a working directory."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("marker"))
    name = f"{BASE}:{os.getpid()}"
    daemon.api.import_image_from_data(
        content.getvalue(), *name.split(":"), changes=["WORKDIR /app", "CMD x"]
    )
    yield name
    daemon.images.remove(name, force=True)


@pytest.fixture(scope="session")
def registry() -> str:
    """The address of a registry that takes images without a login."""
    address = f"localhost:{os.environ.get('TORCHX_TEST_REGISTRY_PORT', '5000')}"
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5):
            return address
    except OSError as err:
        pytest.skip(f"no registry answers on {address}: {err}")


@pytest.fixture
def files_of(daemon: Any):
    """Gives what is in a folder of an image: types, modes, content and targets by path."""

    def look(image: str, folder: str = "/app") -> dict[str, tuple[str, int, object]]:
        container = daemon.containers.create(image, "x")
        try:
            chunks, _ = container.get_archive(folder)
            content = io.BytesIO(b"".join(chunks))
        finally:
            container.remove()
        found: dict[str, tuple[str, int, object]] = {}
        with tarfile.open(fileobj=content) as tar:
            for member in tar.getmembers():
                path = member.name.partition("/")[2]
                file = tar.extractfile(member) if member.isfile() else None
                what = file.read() if file else member.linkname
                kind = "file" if file else "link" if member.issym() else "dir"
                found[path] = (kind, 0 if kind == "link" else member.mode & 0o7777, what)
        del found[""]
        return found

    return look


@pytest.fixture
def built(daemon: Any) -> Iterator[list[str]]:
    """Images to remove at the end."""
    images: list[str] = []
    yield images
    for image in images:
        try:
            daemon.images.remove(image, force=True)
        except docker.errors.ImageNotFound:
            pass
