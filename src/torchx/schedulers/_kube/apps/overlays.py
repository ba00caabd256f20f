"""Reads the user's overlays of a role's pods, in all their forms."""

from collections.abc import Sequence
from typing import Any

from torchx.specs.api import AppDef, Role
from torchx.specs.overlays import get_overlay

_KIND = "V1Pod"
_PARTS = ("spec", "metadata")
_OF_A_POD = {*_PARTS, "apiVersion", "kind"}


def read_overlay(
    role: Role, app: AppDef | None = None, namespaces: Sequence[str] = ("kubernetes",)
) -> dict[str, Any]:
    """Returns the overlay from metadata, or from the file named there.

    Args:
        app: the app; its metadata, set by ``--metadata``, apply to roles without any.
        namespaces: namespaces in metadata; the first existing one wins.
    """
    targets: list[AppDef | Role] = [role] if app is None else [role, app]
    for target in targets:
        for namespace in namespaces:
            if namespace in target.metadata:
                return _read(target, namespace)
    return {}


def _read(target: AppDef | Role, namespace: str) -> dict[str, Any]:
    metadata: dict[str, Any] = target.metadata
    held = metadata[namespace]
    if isinstance(held, dict) and held and {*held} <= _OF_A_POD:
        return held  # written by hand; several keys would be taken for kinds
    overlay = get_overlay(target, namespace, _KIND)
    if isinstance(held, str) and not overlay:  # a file may have that form as well
        parts = {k: get_overlay(target, namespace, k, flat_fallback=False) for k in _PARTS}
        return {key: part for key, part in parts.items() if part}
    return {key: value for key, value in overlay.items() if key not in ("apiVersion", "kind")}
