"""Gets a workspace of 20,000 files into a registry: new, unchanged, and with one file changed.

Releases that need a Docker daemon build and push with it. The registry is one on this machine.
"""

import contextlib
import logging
import os
import random
import time
import uuid
from pathlib import Path

from _shared import report
from _tree import make_tree

from torchx.specs import AppDef, Role, Workspace
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

REGISTRY = f"localhost:{os.environ.get('TORCHX_TEST_REGISTRY_PORT', '5000')}"
BASE = f"{REGISTRY}/torchx-bench/base"


def push_base() -> None:
    """Puts an empty image into the registry, and leaves it on the daemon as well."""
    import docker

    with contextlib.closing(docker.from_env()) as client:
        empty_archive = b"\0" * 10240
        client.api.import_image_from_data(
            empty_archive, BASE, "1", changes=["WORKDIR /app", 'ENV PATH="/bin"']
        )
        for event in client.api.push(BASE, "1", stream=True, decode=True):
            if "error" in event:
                raise SystemExit(event["error"])


def build_and_push(root: Path, repository: str) -> float:
    """How long it takes, in seconds, until a cluster could run the workspace."""
    app = AppDef("app", [Role("r", f"{BASE}:1", workspace=Workspace({str(root): ""}))])
    cfg = {"image_repo": repository, "quiet": True}
    os.sync()  # what an earlier step wrote must not slow this one
    builder = DockerWorkspaceMixin()
    started = time.perf_counter()
    builder.build_workspaces(app.roles, cfg)
    builder.push_images(builder.dryrun_push_images(app, cfg))
    return time.perf_counter() - started


def change_one_file(root: Path) -> None:
    name = random.choice(["src/pkg7/mod7/file7.py", "src/pkg3/mod21/file201.py"])
    (root / name).write_text(str(time.time_ns()))
    time.sleep(2.1)  # as a user needs at least, from the last edit to the next run


def main() -> None:
    logging.disable()
    push_base()
    root = Path.cwd() / f"workspace-{uuid.uuid4().hex}"
    make_tree(root)
    change_one_file(root)
    repository = f"{REGISTRY}/torchx-bench/{uuid.uuid4().hex}"
    new_s = build_and_push(root, repository)
    unchanged_s = build_and_push(root, repository)
    change_one_file(root)
    changed_s = build_and_push(root, repository)
    report(new_s=new_s, unchanged_s=unchanged_s, changed_s=changed_s)


main()
