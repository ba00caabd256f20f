"""An id that all calls of one process, and the jobs that it launches, share."""

import os

from torchx.settings import ENV_TORCHX_INTERNAL_SESSION_ID

TORCHX_INTERNAL_SESSION_ID = ENV_TORCHX_INTERNAL_SESSION_ID
CURRENT_SESSION_ID: str | None = None
"""``None`` until it is first needed."""


def get_session_id_or_create_new() -> str:
    """Returns this process's session id; creates one if it inherited none."""
    global CURRENT_SESSION_ID
    if CURRENT_SESSION_ID is None:
        CURRENT_SESSION_ID = os.environ.get(ENV_TORCHX_INTERNAL_SESSION_ID) or _uuid4()
    return CURRENT_SESSION_ID


def get_torchx_session_id() -> str | None:
    """Returns this process's session id; ``None`` if it has none yet."""
    return CURRENT_SESSION_ID


def _uuid4() -> str:
    """A random UUID (RFC 9562, version 4), without the cost of importing ``uuid``."""
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
