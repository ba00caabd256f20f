"""Plans of images that are not in the registry yet, shared with other processes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx.errors import InvalidInput
from torchx.workspace._registry._blobs import FileBlob, digest_of
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._client import Manifest

_PLANNED_S = 7 * 24 * 3600
"""Seconds for which the layer of a planned but unpushed image is kept."""


@dataclass(frozen=True)
class Plan:
    """An image that is not in the registry yet, with everything needed to push it.

    Args:
        repository: the target repository.
        base: reference of the image whose layers it has.
        layers: descriptors of these layers.
        layer: the workspace.
    """

    repository: str
    base: str
    manifest: Manifest
    config: bytes
    layers: tuple[Mapping[str, Any], ...]
    layer: FileBlob

    @property
    def tag(self) -> str:
        """Tag of the image in the repository: its id in Docker."""
        return digest_of(self.config).partition(":")[2]

    @property
    def image(self) -> str:
        """Name of exactly this image, by digest."""
        return f"{self.repository}@{self.manifest.digest}"


def find_plan(image: str) -> Plan | None:
    """Returns the plan for an image by digest, also of another process; ``None`` if none."""
    repository, at, _ = image.partition("@")
    if not at:
        return None
    try:
        kept = Cache().read("plans", _plan_name(image))
    except InvalidInput:  # there is no home directory
        kept = None
    if kept is None:
        return None
    try:
        content = json.loads(kept)
        plan = Plan(
            repository=repository,
            base=content["base"],
            manifest=Manifest(content["media_type"], content["manifest"].encode()),
            config=content["config"].encode(),
            layers=tuple(content["layers"]),
            layer=FileBlob(*content["layer"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return plan if plan.image == image else None


def keep_plan(plan: Plan, cache: Cache) -> None:
    """Stores a plan for other processes."""
    content = {
        "base": plan.base,
        "media_type": plan.manifest.media_type,
        "manifest": plan.manifest.data.decode(),
        "config": plan.config.decode(),
        "layers": plan.layers,
        "layer": [plan.layer.path, plan.layer.digest, plan.layer.size],
    }
    cache.write("plans", _plan_name(plan.image), json.dumps(content).encode())


def forget_plan(plan: Plan) -> None:
    """Removes a plan whose image was pushed."""
    Cache().remove("plans", _plan_name(plan.image))


def planned_layers(cache: Cache) -> set[str]:
    """Returns digests of the layers in recent plans."""
    found = set()
    for kept in cache.read_recent("plans", _PLANNED_S):
        try:
            found.add(str(json.loads(kept)["layer"][1]))
        except (ValueError, KeyError, TypeError, IndexError):
            continue
    return found


def _plan_name(image: str) -> str:
    return hashlib.sha256(image.encode()).hexdigest()
