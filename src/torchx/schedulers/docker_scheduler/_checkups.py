"""Checks for jobs in containers: Docker's Python package, the daemon, its disk space."""

import os
import shutil
import time
from importlib.util import find_spec
from typing import Any

from torchx._docker import connect, docker_host, image_record, translate_errors
from torchx.errors import BackendUnavailable, DockerRefused
from torchx.schedulers._core.checkups import (
    Checkup,
    Configured,
    Finding,
    broken,
    neutral,
    ok,
    warning,
)
from torchx.schedulers._core.clocks import clock_finding, parse_rfc3339
from torchx.schedulers._image_checkups import container_checkups

_SOCKET = "unix://"
_LEAST_FREE = 5 << 30


def checkups(configured: Configured | None = None) -> list[Checkup]:
    """Returns all checks; only one if Docker is not set up."""
    absent = _absent()
    if absent is not None:
        return [Checkup("daemon", lambda: absent)]
    more = [Checkup("clock", _clock), Checkup("space", _space), Checkup("GPUs", _gpus)]
    more += container_checkups(configured or Configured(), _is_here)
    return [Checkup("daemon", _daemon), *(_if_it_answers(check) for check in more)]


def _if_it_answers(checkup: Checkup) -> Checkup:
    """Wraps a check so that it does not report a missing daemon, which another check does."""

    def check() -> Finding:
        try:
            return checkup.check()
        except (BackendUnavailable, DockerRefused):
            return neutral("the daemon does not answer")

    return Checkup(checkup.name, check)


def _absent() -> Finding | None:
    host = docker_host()
    if host.startswith(_SOCKET):
        path = "/" + host[len(_SOCKET) :].lstrip("/")
        if not os.path.exists(path):
            return neutral(f"not set up: there is no daemon at {host}", "Start Docker")
        if not os.access(path, os.R_OK | os.W_OK):
            return broken(f"this user may not use {path}", "sudo usermod -aG docker $USER")
    if find_spec("docker") is None:
        return neutral("not set up: Docker's Python package", "pip install 'torchx[docker]'")
    return None


def _info() -> Any:  # an error of Docker's SDK
    client = connect()
    try:
        with translate_errors("tell of itself"):
            return client.info()
    finally:
        client.close()


def _daemon() -> Finding:
    try:
        info = _info()
    except (BackendUnavailable, DockerRefused) as err:
        return broken(str(err), "Start Docker, or set DOCKER_HOST")
    version = info.get("ServerVersion", "of an unknown version")
    return ok(f"Docker {version} at {docker_host()}, {info.get('NCPU', '?')} CPUs,"
              f" {(info.get('MemTotal') or 0) / (1 << 30):.0f} GB")  # fmt: skip


def _clock() -> Finding:
    there_s = parse_rfc3339(str(_info().get("SystemTime") or ""))
    return clock_finding(there_s, time.time(), "the daemon")


def _is_here(image: str) -> bool:
    client = connect()
    try:
        return image_record(client, image) is not None
    finally:
        client.close()


def _space() -> Finding:
    root = str(_info().get("DockerRootDir") or "")
    if not os.path.isdir(root):
        return neutral("the daemon's disk is on another machine")
    free = shutil.disk_usage(root).free
    text = f"{free / (1 << 30):.1f} GB free for images in {root}"
    return ok(text) if free >= _LEAST_FREE else warning(text, "docker system prune")


def _gpus() -> Finding:
    runtimes = _info().get("Runtimes") or {}
    if "nvidia" in runtimes:
        return ok("containers can use NVIDIA GPUs")
    return neutral("containers cannot use GPUs: the NVIDIA runtime is not there")
