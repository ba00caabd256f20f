"""Walks, copies, packs and builds a workspace of 20,000 files, of which 2,000 are ignored."""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
from _shared import report
from _tree import SENT, make_tree

from torchx.specs import Role
from torchx.workspace import walk_workspace
from torchx.workspace.dir_workspace import _copy_to_dir
from torchx.workspace.docker_workspace import DockerWorkspaceMixin, _build_context

BASE = "torchx-bench/base:1"


@contextlib.contextmanager
def timed(figures: dict[str, float], name: str) -> Iterator[None]:
    """Keeps how long the body takes, in seconds."""
    os.sync()  # what an earlier step wrote must not slow this one
    started = time.perf_counter()
    yield
    figures[name] = time.perf_counter() - started


def build(figures: dict[str, float], root: Path) -> None:
    """Builds with the Docker daemon, if there is one: after a change, and again without any."""
    try:
        import docker

        client = docker.from_env()
    except Exception:  # noqa: BLE001 - whatever is missing, these figures are left out
        return
    with contextlib.closing(client):
        client.api.import_image_from_data(
            empty_archive(), *BASE.split(":"), changes=["WORKDIR /app"]
        )
        (root / "src/new.py").write_text(str(time.time_ns()))
        time.sleep(2.1)  # as a user needs at least, from the last edit to the next run
        for name in ("build_s", "rebuild_s"):
            role = Role("r", BASE)
            with timed(figures, name):
                DockerWorkspaceMixin().build_workspace_and_update_role(role, str(root), {})
        client.images.remove(role.image, force=True)


def empty_archive() -> bytes:
    """A tar archive of nothing."""
    return b"\0" * 10240


def main() -> None:
    logging.disable()
    root = Path.cwd() / "workspace"
    if not root.exists():
        make_tree(root)
    figures: dict[str, float] = {}
    fs, path = fsspec.core.url_to_fs(str(root))
    with timed(figures, "walk_s"):
        found = sum(len(files) for _, _, files in walk_workspace(fs, path))
    assert found >= SENT
    with timed(figures, "copy_s"):
        _copy_to_dir(str(root), f"{Path.cwd()}/copy-{uuid.uuid4().hex}")
    with timed(figures, "context_s"), _build_context(BASE, str(root)) as context:
        while context.read(1 << 20):
            pass
    build(figures, root)
    report(**figures)


main()
