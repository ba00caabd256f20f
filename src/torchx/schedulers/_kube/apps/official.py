"""Objects of the official client, for those who use it: it is not needed otherwise."""

import re
from typing import Any

from torchx.errors import InvalidInput, NotInstalled
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.config import Cluster, Config, Pem, User

_LIST = re.compile(r"list\[(.+)\]", re.IGNORECASE)
_DICT = re.compile(r"dict[(\[]str, (.+)[)\]]", re.IGNORECASE)


def to_official(body: Any, model: str) -> Any:
    """A plain object as that of the official client, such as ``V1Pod``.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) without the package ``kubernetes``.
    """
    return _built(_client(), body, model)


def _built(client: Any, value: Any, kind: str) -> Any:
    """Made by hand: releases of the client read JSON in different ways."""
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
    """Plain data as it is; an object of the official client as its JSON."""
    if isinstance(obj, dict):
        return {key: to_plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [to_plain(value) for value in obj]
    if obj is None or isinstance(obj, (str, int, float, bool)):
        return obj
    return _client().ApiClient().sanitize_for_serialization(obj)


def adapted(client: Any) -> KubeClient:
    """Our client for the server that an ``ApiClient`` of the official one talks to.

    A token is taken over as it is then: one that expires needs a new scheduler.

    Raises:
        InvalidInput: for anything else.
    """
    if isinstance(client, KubeClient):
        return client
    configuration = getattr(client, "configuration", None)
    if configuration is None or not getattr(configuration, "host", ""):
        msg = f"`client` is an `ApiClient` of the package `kubernetes`, given: {type(client)}"
        raise InvalidInput(msg)
    from torchx.schedulers._kube.transport import HttpTransport

    config = official_config(configuration)
    return KubeClient(HttpTransport(config), config.user.name)


def official_config(configuration: Any) -> Config:
    """What a ``Configuration`` of the official client says."""
    token = configuration.get_api_key_with_prefix("BearerToken", "authorization") or ""
    cluster = Cluster(
        configuration.host,
        name="that of the client",
        ca=_pem(configuration.ssl_ca_cert),
        insecure=not configuration.verify_ssl,
        tls_server_name=getattr(configuration, "tls_server_name", None) or "",
        proxy_url=getattr(configuration, "proxy", None) or "",
    )
    user = User(
        name="that of the client",
        token=token.removeprefix("Bearer "),
        certificate=_pem(configuration.cert_file),
        key=_pem(configuration.key_file),
    )
    return Config(cluster, user)


def _pem(path: str | None) -> Pem | None:
    return Pem(path=path) if path else None


def _client() -> Any:
    try:
        from kubernetes import client
    except ModuleNotFoundError as err:
        msg = "objects of the official Kubernetes client need the Python package `kubernetes`"
        raise NotInstalled(msg, name=err.name) from None
    return client
