"""Our client for servers that somebody uses the official client for."""

from typing import Any

from torchx.errors import InvalidInput
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.config import Cluster, Config, Pem, User
from torchx.schedulers._kube.transport import HttpTransport


def adapted(client: Any) -> KubeClient:
    """Returns our client for the server of the official client's ``ApiClient``.

    The token is copied once: if it expires, a new scheduler is needed.

    Raises:
        InvalidInput: for anything else.
    """
    if isinstance(client, KubeClient):
        return client
    configuration = getattr(client, "configuration", None)
    if configuration is None or not getattr(configuration, "host", ""):
        msg = f"`client` is an `ApiClient` of the package `kubernetes`, given: {type(client)}"
        raise InvalidInput(msg)
    config = official_config(configuration)
    return KubeClient(HttpTransport(config), config.user.name)


def official_config(configuration: Any) -> Config:
    """Converts a ``Configuration`` of the official client."""
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
