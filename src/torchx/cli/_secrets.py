"""Keeps the values of secret environment variables out of what is shown."""

import argparse
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MASK = "***"

_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "PRIVATE_KEY",
    "ACCESS_KEY",
)

# shorter values are masked only behind their name: `1` would hide every digit of a request
_MIN_LENGTH_ANYWHERE = 8


def add_show_secrets(subparser: argparse.ArgumentParser) -> None:
    """Adds ``--show-secrets``."""
    subparser.add_argument(
        "--show-secrets",
        action="store_true",
        help=f"show the values of environment variables named like secrets, not {MASK}",
    )


@functools.cache  # few names stand in many requests
def looks_secret(name: str) -> bool:
    """Whether the name of an environment variable says that its value is a secret.

    >>> looks_secret("HF_TOKEN"), looks_secret("TOKENIZERS_PARALLELISM")
    (True, False)
    """
    plain = name.upper().replace("-", "_").replace("TOKENIZER", "")
    return any(word in plain for word in _WORDS)


def mask_app(app: "dict[str, Any]") -> "dict[str, Any]":
    """The app, as plain data, with the secrets in the environment of its roles masked."""
    roles = [{**role, "env": _mask_env(role.get("env") or {})} for role in app.get("roles", ())]
    return {**app, "roles": roles}


def mask_data(value: "Any") -> "Any":
    """Plain data with every text masked whose key looks secret, ``{"name", "value"}`` pairs too."""
    if isinstance(value, Mapping):
        name = value.get("name")
        masked = {key: _mask_entry(key, entry) for key, entry in value.items()}
        if isinstance(name, str) and looks_secret(name) and value.get("value"):
            masked["value"] = MASK
        return masked
    if isinstance(value, list | tuple):
        return [mask_data(entry) for entry in value]
    return value


def mask_text(text: str, app: "dict[str, Any]", request: "Any" = None) -> str:
    """A rendered request with the secrets of the (unmasked) app masked, as far as text allows.

    Args:
        request: the request, of mappings, lists and dataclasses, for secrets that come from
            elsewhere than the app.
    """
    secrets = set(_secrets_in(request)) | {
        (str(name), str(value))
        for role in app.get("roles", ())
        for name, value in (role.get("env") or {}).items()
        if value and looks_secret(str(name))
    }
    for name, value in sorted(secrets, key=lambda secret: -len(secret[1])):
        text = _mask_value(text, name, value)
    return text


def _secrets_in(value: "Any") -> "Iterator[tuple[str, str]]":
    """Names and values of the secrets in plain data and dataclasses."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        value = {name: getattr(value, name) for name in fields}
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if isinstance(key, str) and isinstance(entry, str) and entry and looks_secret(key):
                yield key, entry
            else:
                yield from _secrets_in(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets_in(entry)


def _mask_entry(key: object, entry: "Any") -> "Any":
    if isinstance(key, str) and isinstance(entry, str) and entry and looks_secret(key):
        return MASK
    return mask_data(entry)


def _mask_env(env: Mapping[str, str]) -> dict[str, str]:
    return {k: MASK if v and looks_secret(k) else v for k, v in env.items()}


def _mask_value(text: str, name: str, value: str) -> str:
    import json
    import re
    import shlex

    spellings = {value, repr(value)[1:-1], json.dumps(value)[1:-1], shlex.quote(value)}
    for spelling in sorted(spellings, key=len, reverse=True):
        if len(spelling) >= _MIN_LENGTH_ANYWHERE:
            text = text.replace(spelling, MASK)
        else:
            behind_name = rf"({re.escape(name)}\W+(?:value\W+)?){re.escape(spelling)}(?!\w)"
            text = re.sub(behind_name, rf"\g<1>{MASK}", text)
    return text
