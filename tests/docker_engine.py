"""A real Docker daemon and images on it, for tests that are left out unless told to use them."""

import contextlib
import fcntl
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = "scripts/engines/docker"
PYTHON_IMAGE = "torchx-test/python"
MISSING_IMAGE = f"the image is missing, make it with: {SCRIPT} image"


@functools.cache
def why_not() -> str:
    """Why tests cannot use Docker; empty if they can."""
    from torchx._docker import connect
    from torchx.errors import BackendUnavailable, DockerNotInstalled

    try:
        client = connect()
    except DockerNotInstalled as err:
        return str(err)
    except BackendUnavailable as err:
        return f"{err} ({SCRIPT} up)"
    try:
        return "" if client.images.list(name=PYTHON_IMAGE) else f"{PYTHON_IMAGE}: {MISSING_IMAGE}"
    finally:
        client.close()


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skips the test without a daemon that has the image; no test touches one before."""
    if why_not():
        pytest.skip(f"no Docker: {why_not()}")


needs_docker = [
    pytest.mark.docker,
    pytest.mark.usefixtures("docker_engine"),
    pytest.mark.timeout(300),
]


def image_id(client: Any, repository: str) -> str:
    """Id of the newest image of a repository, which is never pulled; skips without one."""
    images = client.images.list(name=repository)
    if not images:
        pytest.skip(f"{repository}: {MISSING_IMAGE}")
    return str(images[0].id)


def image_with_init(client: Any) -> str:
    """The image with Python and with an init as its entrypoint: its programs end on SIGTERM.

    As process 1 of a container a shell ignores SIGTERM, and each cancel would take the full grace.
    """
    base = image_id(client, PYTHON_IMAGE)
    tag = "torchx-test/python-init"
    with _one_at_a_time():
        found = [i for i in client.images.list(name=tag) if i.labels.get("base") == base]
        if found:
            return str(found[0].id)
        container = client.containers.create(base, ["true"])
        try:
            made = container.commit(
                tag, changes=['ENTRYPOINT ["/usr/bin/tini", "--"]', f"LABEL base={base}"]
            )
        finally:
            container.remove()
        return str(made.id)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Holds back all other test runs of this machine."""
    with open(Path(tempfile.gettempdir(), "torchx-test-image.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
