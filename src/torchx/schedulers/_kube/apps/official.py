"""Converts objects of the official client, for users of it; optional otherwise."""

import re
from typing import Any

from torchx.errors import NotInstalled

_LIST = re.compile(r"list\[(.+)\]", re.IGNORECASE)
_DICT = re.compile(r"dict[(\[]str, (.+)[)\]]", re.IGNORECASE)


def to_official(body: Any, model: str) -> Any:
    """Converts a plain object to one of the official client, such as ``V1Pod``.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) without the package ``kubernetes``.
    """
    return _built(_client(), body, model)


def _built(client: Any, value: Any, kind: str) -> Any:
    """Builds an object by hand: releases of the client parse JSON in different ways."""
    if value is None:
        return None
    if found := _LIST.fullmatch(kind):
        return [_built(client, item, found[1]) for item in value]
    if found := _DICT.fullmatch(kind):
        return {key: _built(client, item, found[1]) for key, item in value.items()}
    model = getattr(client, kind, None)
    if model is None:
        return value
    fields = {
        name: _built(client, value[key], model.openapi_types[name])
        for name, key in model.attribute_map.items()
        if key in value
    }
    return model(**fields)


def to_plain(obj: Any) -> Any:
    """Converts an object of the official client to JSON data; returns plain data unchanged."""
    if isinstance(obj, dict):
        return {key: to_plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [to_plain(value) for value in obj]
    if obj is None or isinstance(obj, (str, int, float, bool)):
        return obj
    return _client().ApiClient().sanitize_for_serialization(obj)


def _client() -> Any:
    try:
        from kubernetes import client
    except ModuleNotFoundError as err:
        msg = "objects of the official Kubernetes client need the Python package `kubernetes`"
        raise NotInstalled(msg, name=err.name) from None
    return client
