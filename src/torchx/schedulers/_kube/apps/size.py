"""How large one object may be. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torchx.errors import InvalidInput

_LARGEST_BYTES = 1_500_000
"""Of one object: more is not stored by most clusters, which say so in many ways."""
_FITS_ALWAYS = 100
"""So many replicas are not worth the time to measure them."""


def check_size(body: Mapping[str, Any], replicas: Sequence[Any], kind: str, advice: str) -> None:
    """Raises ``InvalidInput`` for an object that holds more replicas than a cluster keeps.

    Args:
        replicas: parts of the object, one for each.
        kind: of the object, in words.
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
