"""Objects of the official client, for those who use it: it is not needed otherwise."""

import json
from typing import Any

from torchx.errors import NotInstalled


class _Answer:
    """What the official client reads objects from."""

    def __init__(self, body: object) -> None:
        self.data = json.dumps(body)


def to_official(body: object, model: str) -> Any:
    """A plain object as that of the official client, such as ``V1Pod``.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) without the package ``kubernetes``.
    """
    return _client().ApiClient().deserialize(_Answer(body), model)


def to_plain(obj: Any) -> Any:
    """Plain data as it is; an object of the official client as its JSON."""
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
