"""Connects to the Docker daemon."""

from typing import Any

from torchx._docker._errors import docker_host, unavailable
from torchx.errors import DockerNotInstalled

_POOL_CONNECTIONS = 64
"""Size of the connection pool: each followed log holds one connection."""


def connect() -> Any:
    """Returns an SDK client for the daemon that the environment selects.

    Raises:
        DockerNotInstalled: (a ``ModuleNotFoundError``) without the SDK.
        BackendUnavailable: if no daemon answers there.
    """
    try:
        import docker.errors  # a folder `docker` in the working directory is not that package
    except ModuleNotFoundError as err:
        if err.name not in ("docker", "docker.errors"):
            raise
        msg = "Docker's Python package is missing"
        raise DockerNotInstalled(msg, name="docker", extra="docker") from None
    try:
        probe_socket()
        return docker.from_env(max_pool_size=_POOL_CONNECTIONS)
    except (docker.errors.DockerException, OSError, ValueError) as err:
        # a malformed address is a `ValueError`; exceptions of requests are `OSError`s
        raise unavailable(err) from None


def probe_socket() -> None:
    """Raises ``OSError`` if nothing listens on the daemon's socket; the SDK would leak a file."""
    import socket

    host = docker_host()
    if not host.startswith("unix://") or not hasattr(socket, "AF_UNIX"):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect("/" + host[len("unix://") :].lstrip("/"))
