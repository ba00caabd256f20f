"""The user's own fields of the pods of a role, in all the ways in which they are written."""

from typing import Any

from torchx.specs.api import Role
from torchx.specs.overlays import get_overlay

_KIND = "V1Pod"
_OF_A_POD = {"spec", "metadata", "apiVersion", "kind"}


def read_overlay(role: Role, *namespaces: str) -> dict[str, Any]:
    """The overlay from metadata, or from the file that they name.

    Args:
        namespaces: in metadata; the first one that is there counts.
    """
    namespace = next((name for name in namespaces if name in role.metadata), namespaces[0])
    held = role.metadata.get(namespace)
    if isinstance(held, dict) and held and {*held} <= _OF_A_POD:
        return held  # written by hand; with several keys it would be taken for kinds
    overlay = get_overlay(role, namespace, _KIND)
    return {key: value for key, value in overlay.items() if key not in ("apiVersion", "kind")}
