"""The flag that shows secrets, and masking of output without it."""

import argparse

from torchx._secrets import (
    MASK,
    looks_secret,
    mask_app,
    mask_data,
    mask_message,
    mask_request,
    mask_text,
)

__all__ = [
    "MASK",
    "add_show_secrets",
    "looks_secret",
    "mask_app",
    "mask_data",
    "mask_message",
    "mask_request",
    "mask_text",
]


def add_show_secrets(subparser: argparse.ArgumentParser) -> None:
    """Adds ``--show-secrets``."""
    subparser.add_argument(
        "--show-secrets",
        action="store_true",
        help=f"show values that look like secrets, by their name or in URLs, not {MASK}",
    )
