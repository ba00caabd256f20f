"""Reads the user's overlays of a role's pods, in all their forms."""

import copy
from collections.abc import Sequence
from typing import Any

from torchx.errors import InvalidInput
from torchx.specs.api import AppDef, Role
from torchx.specs.overlays import get_overlay, load_overlay

_KIND = "V1Pod"
_OF_A_POD = {"spec", "metadata", "apiVersion", "kind"}


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
    held = target.metadata[namespace]
    if isinstance(held, str):
        held = _load(held)
    if isinstance(held, dict) and {*held} <= _OF_A_POD:
        overlay = held  # written like a pod; with several keys it would be taken for kinds
    else:
        shown = copy.copy(target)
        shown.metadata = {namespace: held}
        overlay = get_overlay(shown, namespace, _KIND)
    return {key: value for key, value in overlay.items() if key not in ("apiVersion", "kind")}


def _load(uri: str) -> dict[str, Any]:
    try:
        return load_overlay(uri)
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise InvalidInput(f"overlay file `{uri}` cannot be read: {reason}") from None
