"""Plans of images that are not in the registry yet, kept for other processes too."""

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
"""Time that the layer of an image is kept that was planned and not pushed."""


@dataclass(frozen=True)
class Plan:
    """An image that is not in the registry yet, with all that is needed to put it there.

    Args:
        repository: where it goes.
        base: the image whose layers it has, as a reference.
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
        """Name of the image in the repository: its id, as Docker knows it."""
        return digest_of(self.config).partition(":")[2]

    @property
    def image(self) -> str:
        """Name of exactly this image, to run it by."""
        return f"{self.repository}@{self.manifest.digest}"


def find_plan(image: str) -> Plan | None:
    """The plan for an image by digest, also one of another process; ``None`` if there is none."""
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
    """Lets other processes find a plan."""
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
    """Says that an image is in its repository."""
    Cache().remove("plans", _plan_name(plan.image))


def planned_layers(cache: Cache) -> set[str]:
    """Digests of the layers that plans of the last days are made of."""
    found = set()
    for kept in cache.read_recent("plans", _PLANNED_S):
        try:
            found.add(str(json.loads(kept)["layer"][1]))
        except (ValueError, KeyError, TypeError, IndexError):
            continue
    return found


def _plan_name(image: str) -> str:
    return hashlib.sha256(image.encode()).hexdigest()
