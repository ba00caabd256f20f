"""Connection pools with Docker's rules for certificates, proxies and unencrypted registries."""

import contextlib
import os
import re
import ssl
import urllib.parse
import urllib.request
import warnings
from collections.abc import Mapping
from typing import Any

from urllib3 import HTTPConnectionPool, PoolManager, ProxyManager
from urllib3.exceptions import InsecureRequestWarning, LocationValueError
from urllib3.util import parse_url

from torchx.errors import InvalidInput
from torchx.settings import ENV_TORCHX_INSECURE_REGISTRIES
from torchx.workspace._registry._auth import Credentials

_CERTIFICATES = ("/etc/docker/certs.d", "~/.config/docker/certs.d")
_KEPT = 16
"""Open connections to one host: more than the number of threads."""


def is_insecure(host: str, env: Mapping[str, str] = os.environ) -> bool:
    """Returns True for a registry that needs no TLS: a local one, or one that the user named.

    >>> is_insecure("localhost:5000"), is_insecure("example.com")
    (True, False)
    """
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    if name in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", name):
        return True
    named = re.split(r"[,;\s]+", env.get(ENV_TORCHX_INSECURE_REGISTRIES, ""))
    return host in named or name in named


def open_pool(made: list[Any], scheme: str, netloc: str) -> HTTPConnectionPool:
    """Returns a connection pool for a host, through a proxy if the environment names one.

    Args:
        made: receives each connection; the pool itself tracks only idle ones.
    """
    to = urllib.parse.urlsplit(f"{scheme}://{netloc}")
    host = to.hostname or ""
    if scheme == "http":
        pool = HTTPConnectionPool(host, to.port, maxsize=_KEPT)
    else:
        proxy = urllib.request.getproxies().get("https")
        direct = not proxy or urllib.request.proxy_bypass(netloc)
        manager = PoolManager() if direct else _proxy_manager(str(proxy))
        settings = {"ssl_context": _tls_context(netloc), "maxsize": _KEPT}
        pool = manager.connection_from_host(host, to.port, scheme, settings)
    make: Any = pool.ConnectionCls

    def remembered(*args: Any, **settings: Any) -> Any:
        connection = make(*args, **settings)
        made.append(connection)
        return connection

    pool.ConnectionCls = remembered  # type: ignore[assignment]  # a factory in place of the class
    return pool


def untrusted(host: str, err: ssl.SSLCertVerificationError) -> str:
    """Returns the message about an untrusted certificate."""
    return (
        f"the certificate of registry `{host}` is not trusted: {err.verify_message}; put its CA"
        f" into {_CERTIFICATES[0]}/{host}/ca.crt; if it speaks plain HTTP, name it in"
        f" {ENV_TORCHX_INSECURE_REGISTRIES}"
    )


def _tls_context(netloc: str) -> ssl.SSLContext:
    """Returns a TLS context that trusts the system's authorities and Docker's ``certs.d``."""
    context = ssl.create_default_context()
    if is_insecure(netloc):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        message = f".* to host '{re.escape(urllib.parse.urlsplit(f'//{netloc}').hostname or '')}'"
        warnings.filterwarnings("ignore", message, InsecureRequestWarning)  # the user's choice
    for root in _CERTIFICATES:
        folder = os.path.join(os.path.expanduser(root), netloc)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                try:
                    if name.endswith(".crt"):
                        context.load_verify_locations(path)
                    elif name.endswith(".cert"):
                        context.load_cert_chain(path, path[: -len("cert")] + "key")
                except OSError as err:  # also raised by the ssl module
                    raise InvalidInput(f"the certificate `{path}` cannot be used: {err}") from None
    return context


def _proxy_manager(proxy: str) -> ProxyManager:
    try:
        url = parse_url(proxy if "://" in proxy else f"http://{proxy}")
        if not url.host:
            raise LocationValueError
        user, _, password = urllib.parse.unquote(url.auth or "").partition(":")
        headers = {"Proxy-Authorization": Credentials(user, password).basic()} if url.auth else {}
        return ProxyManager(url._replace(auth=None).url, proxy_headers=headers)
    except LocationValueError:  # also a scheme that proxies do not support
        msg = "the proxy in the environment is not a URL: write http://host:port"
        raise InvalidInput(msg) from None
