"""Checks the size of one object. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torchx.errors import InvalidInput

_LARGEST_BYTES = 1_500_000
"""Most bytes of one object: most clusters store no more, and report it in many ways."""
_FITS_ALWAYS = 100
"""So many replicas are not worth the time to measure them."""


def check_size(body: Mapping[str, Any], replicas: Sequence[Any], kind: str, advice: str) -> None:
    """Raises ``InvalidInput`` for an object that is too large for a cluster.

    Args:
        replicas: parts of the object, one for each.
        kind: kind of the object, for the message.
        advice: what to use instead.
    """
    if len(replicas) <= _FITS_ALWAYS:
        return
    size = len(json.dumps(body))
    if size > _LARGEST_BYTES:
        msg = (
            f"`{body['metadata']['name']}` has {len(replicas)} replicas, as one {kind} "
            f"{size / 1e6:.1f} MB, of which a cluster keeps 1.5 MB: use {advice}, "
            "whose size does not grow"
        )
        raise InvalidInput(msg)
