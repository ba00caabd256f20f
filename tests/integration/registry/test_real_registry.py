"""Images made in a real registry, and what a real daemon makes of them."""

import contextlib
import hashlib
import io
import os
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from urllib3 import Retry

from tests.registry_images import append_workspace
from torchx.errors import InvalidInput
from torchx.specs.api import AppDef, Role, Workspace
from torchx.workspace._registry._blobs import BytesBlob
from torchx.workspace._registry._client import Registry
from torchx.workspace._registry._reference import parse_repository
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from .conftest import push_image

LARGE = os.urandom(5 << 20)
"""Makes a layer too large to be read without need."""
BASE = {"etc/": 0o755, "etc/os": b"test", "tmp/": 0o1777}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Everything that an image can get wrong."""
    root = tmp_path / "ws"
    (root / "pkg/deep/er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "main.py").write_text("import pkg.mod\nprint('ran', pkg.mod.VALUE)\n")
    (root / "pkg/mod.py").write_text("VALUE = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "private").write_text("x")
    (root / "private").chmod(0o600)
    (root / "setuid").write_text("x")
    (root / "setuid").chmod(0o4711)
    (root / "setgid").write_text("x")
    (root / "setgid").chmod(0o2755)
    (root / "locked").write_text("x")
    (root / "locked").chmod(0o2744)
    (root / "group").mkdir()
    (root / "group").chmod(0o2775)
    (root / "closed").mkdir()
    (root / "closed/f").write_text("x")
    (root / "closed").chmod(0o700)
    (root / "sticky").mkdir()
    (root / "sticky").chmod(0o1777)
    (root / "sticky/f").write_text("x")
    (root / "link").symlink_to("main.py")
    (root / "pkg/up").symlink_to("../run.sh")
    (root / "dangling").symlink_to("nowhere")
    (root / "to-dir").symlink_to("pkg/deep")
    (root / "pkg/deep/er/nothing").write_bytes(b"")
    (root / "pkg/deep/er/large").write_bytes(os.urandom(5 << 20))
    (root / ("n" * 120)).write_text("long")
    (root / "sp ace\n").write_text("odd")
    (root / "ümläut").write_text("text")
    (root / "data/left-out").mkdir(parents=True)
    (root / "data/kept").write_text("x")
    (root / ".dockerignore").write_text("data/left-out\n")
    return root


class Builder(DockerWorkspaceMixin):
    """A backend that runs jobs elsewhere."""


def built(workspace: Path, base: str, **cfg: Any) -> str:
    """The image that a job would run."""
    builder = Builder()
    app = AppDef("app", [Role("r", image=base, workspace=Workspace({str(workspace): ""}))])
    builder.build_workspaces(app.roles, cfg)
    if cfg["image_builder"] == "registry":
        builder.push_images(builder.dryrun_push_images(app, cfg))
    return app.roles[0].image


def contents(client: Any, image: str) -> dict[str, tuple[object, ...]]:
    """Everything in the file system of an image but its time stamps."""
    container = client.containers.create(image, ["none"])
    try:
        stream = io.BytesIO(b"".join(container.export()))
    finally:
        container.remove()
    found = {}
    with tarfile.open(fileobj=stream) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            content = hashlib.sha256(file.read()).hexdigest() if file else ""
            found[member.name] = (
                *(member.type, oct(member.mode), member.uid, member.gid, member.linkname),
                content,
            )
    return found


@pytest.mark.docker
@pytest.mark.registry
@pytest.mark.parametrize("oci", [False, True])
@pytest.mark.parametrize(
    ("layers", "working_dir"),
    [
        ([BASE], ""),
        ([BASE], "/tmp"),
        ([BASE], "/not/there"),
        ([{**BASE, "home/": 0o755, "home/me/": (0o700, 1000, 1001)}], "/home/me"),
        ([{**BASE, "srv/": 0o711, "srv/real/": (0o2750, 5, 6), "app": "-> srv/real"}], "/app/in"),
        ([{**BASE, "old/": 0o755, "app": "-> old"}, {".wh.app": b"", "app/": 0o701}], "/app"),
        ([{**BASE, "app/": 0o755}, {"app/": (0o700, 1000, 1000), "large": LARGE}], "/app"),
        ([{**BASE, "app/": 0o755}, {".wh.app": b"", "large": LARGE}], "/app"),
    ],
)
def test_the_image_is_the_one_that_docker_builds(
    docker_client: Any,
    repository: str,
    workspace: Path,
    layers: list[dict[str, Any]],
    working_dir: str,
    oci: bool,
) -> None:
    base = push_image(repository, *layers, settings={"WorkingDir": working_dir}, oci=oci)
    ours = built(workspace, base, image_builder="registry", image_repo=repository)
    docker_client.images.pull(ours)
    theirs = built(workspace, base, image_builder="docker", quiet=True)
    try:
        found = contents(docker_client, ours)
        assert found == contents(docker_client, theirs)
        place = {"/app/in": "srv/real/in"}.get(working_dir, working_dir).strip("/")
        assert found[os.path.join(place, "private")][1] == oct(0o100600)
        mine, other = (docker_client.api.inspect_image(i)["Config"] for i in (ours, theirs))
        for key in ("Env", "Cmd", "WorkingDir", "Entrypoint", "Labels"):
            assert mine.get(key) == other.get(key), key
        assert docker_client.api.inspect_image(ours)["Id"].startswith("sha256:")
    finally:
        for image in (ours, theirs, base):
            docker_client.images.remove(image, force=True)


@pytest.mark.docker
@pytest.mark.registry
def test_the_code_runs_in_a_container(docker_client: Any, repository: str, workspace: Path) -> None:
    images = docker_client.images.list(name="torchx-test/python")
    if not images:
        pytest.skip(
            "the image torchx-test/python is missing; make it: scripts/engines/docker image"
        )
    images[0].tag(repository, "base")
    pushed = docker_client.api.push(repository, tag="base", stream=True, decode=True)
    assert not [event for event in pushed if "error" in event]
    image = built(workspace, f"{repository}:base", image_builder="registry", image_repo=repository)
    try:
        docker_client.images.pull(image)
        said = docker_client.containers.run(
            image, ["python3", "-B", "link"], remove=True, network_mode="none"
        )
    finally:
        for name in (image, f"{repository}:base"):
            docker_client.images.remove(name, force=True)
    assert said == b"ran 1\n"


@pytest.mark.docker
@pytest.mark.registry
def test_an_image_that_only_the_daemon_has_is_built_on_by_it(
    docker_client: Any, repository: str, workspace: Path
) -> None:
    local = push_image(f"{repository}-pushed", BASE)
    docker_client.images.pull(local)
    docker_client.images.get(local).tag(f"{repository}-local", "1")
    image = built(workspace, f"{repository}-local:1", image_builder="auto", image_repo=repository)
    try:
        assert image.startswith("sha256:")
        with pytest.raises(InvalidInput, match="has no image"):
            built(
                workspace,
                f"{repository}-local:1",
                image_builder="registry",
                image_repo=repository,
            )
    finally:
        for name in (image, local, f"{repository}-local:1"):
            docker_client.images.remove(name, force=True)


@pytest.mark.registry
def test_an_unchanged_workspace_gives_the_same_image(repository: str, workspace: Path) -> None:
    base = push_image(f"{repository}-base", BASE)
    first = append_workspace(base, str(workspace), repository)
    assert append_workspace(base, str(workspace), repository) == first
    (workspace / "main.py").write_text("changed")
    assert append_workspace(base, str(workspace), repository) != first


@pytest.mark.registry
def test_an_upload_that_breaks_ends_well(repository: str, host: str) -> None:
    data = os.urandom(20 << 20)
    blob = BytesBlob(data)
    with Breaking(host) as proxy:
        broken = parse_repository(repository.replace(host, proxy.host))
        with Registry(broken, push=True, retries=Retry(5, backoff_factor=0.05)) as registry:
            registry.upload(blob)
            assert registry.get_blob(blob.digest, 1 << 25) == data
    assert proxy.broken == 2


class Breaking:
    """Passes connections on to a host, and cuts the first two that send much."""

    def __init__(self, host: str) -> None:
        name, _, port = host.partition(":")
        self._target = (name, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.host = f"localhost:{self._listener.getsockname()[1]}"
        self.broken = 0

    def __enter__(self) -> "Breaking":
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._sockets:
            connection.close()

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        for client in self._accepted():
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            self._start(self._pass, client, server, 3_000_000)
            self._start(self._pass, server, client, None)

    def _accepted(self) -> Iterator[socket.socket]:
        while True:
            try:
                yield self._listener.accept()[0]
            except OSError:
                return

    def _pass(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        passed = 0
        try:
            while block := source.recv(1 << 16):
                target.sendall(block)
                passed += len(block)
                if most is not None and passed > most and self.broken < 2:
                    self.broken += 1
                    break
            if most is not None:
                hang_up = struct.pack("ii", 1, 0)
                source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hang_up)
                source.close()
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
