"""Plans an image with a workspace in it, and puts it into a registry."""

import hashlib
import json
import os
import posixpath
import stat
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from torchx._projects.entry import LEAVE_OUT, Entry, size_text
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput, RefusedByRegistry
from torchx.specs.api import Workspace
from torchx.version import __version__
from torchx.workspace._registry._base import BaseImage, fetch_base
from torchx.workspace._registry._base_tree import BaseTree, Node
from torchx.workspace._registry._blobs import (
    Blob,
    BytesBlob,
    FileBlob,
    RemoteBlob,
    digest_of,
)
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._client import OCI_MANIFEST, Manifest, Registry
from torchx.workspace._registry._layer import Layer, make_layer
from torchx.workspace._registry._plan import Plan, forget_plan, keep_plan
from torchx.workspace._registry._reference import parse_reference, parse_repository
from torchx.workspace._registry._steps import Steps

if TYPE_CHECKING:
    from urllib3 import Retry

LABEL_VERSION = "torchx.pytorch.org/version"

_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CREATED_BY = "COPY . . # torchx"
_DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_LINKS = 40
_PARALLEL = 4
_SHOWN_AS_STEPS = {"calm_text": ""}

logger = get_logger(__name__)


def find_base(image: str, retries: "Retry | None" = None) -> BaseImage:
    """Fetches the registry's image of this name.

    Raises:
        InvalidInput: if the name is wrong, there is no such image, or the registry refuses.
        BackendUnavailable: if the registry cannot be reached, or stays busy.
        UnsupportedRequest: if only a builder can build on it.
    """
    return fetch_base(parse_reference(image), Cache(), retries=retries)


def plan_image(
    base: BaseImage,
    workspace: Workspace | str,
    entries: Sequence[Entry],
    image_repo: str,
    retries: "Retry | None" = None,
    now_ns: int | None = None,
) -> Plan:
    """Packs a workspace into a layer and plans the image. Nothing is uploaded.

    Args:
        workspace: source of the entries, for messages and to find the previous layer.
        now_ns: time when the entries were found; ``None`` is now.

    Raises:
        InvalidInput: if the workspace does not fit into the image.
        BackendUnavailable: if the registry cannot be reached, or the layer cannot be written.
        UnreadableWorkspace: if a file cannot be read.
    """
    check_names(entries)
    cache = Cache()
    tree = BaseTree(base, cache, retries)
    into = find_place(tree, base.working_dir, str(base.reference))
    prefix = f"{into[-1][0]}/" if into else ""
    check_fit(entries, tree, prefix, str(base.reference))
    slot = hashlib.sha256(f"{workspace}\0{prefix}".encode("utf-8", "surrogateescape")).hexdigest()
    layer = make_layer(entries, into, cache, slot, now_ns)
    config = add_to_config(base.config, layer.diff_id)
    plan = Plan(
        repository=image_repo,
        base=str(base.reference),
        manifest=add_to_manifest(base, config, layer),
        config=config,
        layers=base.layers,
        layer=layer.blob,
    )
    keep_plan(plan, cache)
    return plan


def check_names(entries: Sequence[Entry]) -> None:
    """Raises ``InvalidInput`` for a name that removes files in a layer (a whiteout).

    https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
    """
    for entry in entries:
        if "/.wh." in f"/{entry.path}":
            msg = (
                f"`{entry.path}` of the workspace cannot be part of an image: names that begin with"
                " `.wh.` remove files of the layers below; rename it,"
                f" or {LEAVE_OUT}"
            )
            raise InvalidInput(msg)


def find_place(tree: BaseTree, working_dir: str, image: str) -> list[tuple[str, Node]]:
    """Returns the directories on the path of a working directory, links followed; empty for the
    root.

    A directory of a layer replaces the mode and owner that it had below, so these must be known.

    Raises:
        InvalidInput: if the image has something else than directories there.
    """
    chain: list[tuple[str, Node]] = []
    left = deque(part for part in working_dir.split("/") if part)
    links = 0
    while left:
        part = left.popleft()
        if part in (".", ".."):
            del chain[len(chain) - 1 if part == ".." and chain else len(chain) :]
            continue
        path = posixpath.join(chain[-1][0] if chain else "", part)
        inherited = chain[-1][1].mode & stat.S_ISGID if chain else 0
        node = tree.find(path) or Node("dir", 0o755 | inherited)
        links += node.kind == "link"
        if node.kind == "file" or links > _MAX_LINKS:
            what = "a file" if node.kind == "file" else "a link that leads to itself"
            msg = (
                f"the image `{image}` has {what} at `/{path}`, which is on the way to its working"
                f" directory `{working_dir}`; set another WORKDIR in the image"
            )
            raise InvalidInput(msg)
        if node.kind == "link":
            if node.target.startswith("/"):
                chain.clear()
            left.extendleft(reversed([part for part in node.target.split("/") if part]))
        else:
            chain.append((path, node))
    return chain


def check_fit(entries: Sequence[Entry], tree: BaseTree, prefix: str, image: str) -> None:
    """Raises ``InvalidInput`` if a directory would replace something else, or the reverse.

    The image could be unusable: a directory ``bin`` that replaces a link hides every program.
    Unread layers are not checked, with a warning: reading gigabytes would take longer than
    everything else.
    """
    for entry in entries:
        path = prefix + entry.path
        if _fits(entry, tree.known(path)):
            continue
        there = tree.find(path)
        if there is None or _fits(entry, there):
            continue
        has = f"a link to `{there.target}`" if there.kind == "link" else f"a {there.kind}"
        msg = (
            f"`{entry.path}` of the workspace is a {entry.kind}, but the image `{image}` has"
            f" {has.replace('a dir', 'a directory')} at `/{path}`; set a WORKDIR of"
            f" its own in the image, or {LEAVE_OUT}"
        )
        raise InvalidInput(msg.replace("is a dir,", "is a directory,"))
    if tree.unread_bytes:
        logger.info(
            "layers of `%s` with %s were not read: whether the workspace replaces a directory or"
            " link that only they have is not known",
            image,
            size_text(tree.unread_bytes),
        )


def _fits(entry: Entry, there: Node | None) -> bool:
    return there is None or (there.kind == "dir") == (entry.kind == "dir")


def add_to_config(config: bytes, diff_id: str) -> bytes:
    """Returns the configuration of an image with one more layer."""
    content = json.loads(config)
    content["rootfs"]["diff_ids"].append(diff_id)
    settings = content["config"] = content.get("config") or {}
    env = settings.get("Env") or []
    if not any(variable.startswith("PATH=") for variable in env):  # Docker's builder adds it, too
        settings["Env"] = [*env, _DEFAULT_PATH]
    settings["Labels"] = {**(settings.get("Labels") or {}), LABEL_VERSION: __version__}
    if content.get("history"):
        entry = {"created_by": _CREATED_BY}
        if content.get("created"):  # not the current time: equal input gives an equal image
            entry = {"created": content["created"], **entry}
        content["history"].append(entry)
    return _json(content)


def add_to_manifest(base: BaseImage, config: bytes, layer: Layer) -> Manifest:
    """Returns the manifest of an image with a new configuration and one more layer."""
    content = json.loads(base.manifest.data)
    content.pop("subject", None)  # it describes the base image
    content["config"] = {
        "mediaType": content["config"]["mediaType"],
        "digest": digest_of(config),
        "size": len(config),
    }
    oci = base.manifest.media_type == OCI_MANIFEST
    content["layers"].append(
        {
            "mediaType": _OCI_LAYER if oci else _DOCKER_LAYER,
            "digest": layer.blob.digest,
            "size": layer.blob.size,
        }
    )
    return Manifest(base.manifest.media_type, _json(content))


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def push_image(plan: Plan, retries: "Retry | None" = None) -> None:
    """Pushes a planned image to its repository; uploads only missing blobs.

    The manifest is pushed last, so that a name never refers to an incomplete image.

    Raises:
        InvalidInput: if the registry refuses.
        BackendUnavailable: if it cannot be reached, or stays busy.
    """
    target, base = parse_repository(plan.repository), parse_reference(plan.base).repository
    mount_from = base.path if base.host == target.host and base != target else None
    with (
        Registry(target, push=True, mount_from=mount_from, retries=retries) as registry,
        Registry(base, retries=retries) as source,
    ):
        if registry.find_manifest(plan.tag) == plan.manifest.digest:
            forget_plan(plan)
            logger.info("image `%s` is in the registry", plan.image)
            return
        blobs: dict[str, Blob] = {}
        if base != target:
            for layer in plan.layers:
                if not layer.get("urls"):  # such a layer is fetched from these
                    digest = layer["digest"]
                    blobs[digest] = RemoteBlob(source, digest, layer["size"])
        tasks: list[tuple[Blob, str | None]] = [(blob, mount_from) for blob in blobs.values()]
        tasks += [(plan.layer, None), (BytesBlob(plan.config), None)]
        steps = Steps(plan.repository, [*blobs.values(), plan.layer])
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="torchx-push") as pool:
            try:
                running = [pool.submit(_push_blob, registry, steps, *task) for task in tasks]
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                registry.abort()
                source.abort()
                pool.shutdown(cancel_futures=True)
                raise
        registry.put_manifest(plan.tag, plan.manifest)
    forget_plan(plan)
    short = {"calm_text": f"pushed image `{plan.repository}:{plan.tag[:12]}`"}
    logger.info("pushed image `%s`", plan.image, extra=short)


def _push_blob(registry: Registry, steps: Steps, blob: Blob, mount_from: str | None) -> None:
    if registry.has_blob(blob.digest):
        steps.finish(blob)
        return
    if not mount_from:
        text = "uploading %s to `%s`: `%s`"
        logger.info(
            text, size_text(blob.size), registry.repository, blob.digest, extra=_SHOWN_AS_STEPS
        )
    try:
        registry.upload(steps.counted(blob), mount_from)
        steps.finish(blob)
    except RefusedByRegistry:
        if isinstance(blob, FileBlob) and not blob.is_whole():
            os.unlink(blob.path)
            msg = f"the layer `{blob.path}` was damaged and is removed; build the image again"
            raise BackendUnavailable(msg) from None
        raise
