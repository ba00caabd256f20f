"""Connections as Docker makes them: certificates, proxies, and where no encryption is needed."""

import base64
import contextlib
import http.client
import os
import re
import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping

from torchx.errors import InvalidInput, UnexpectedReply
from torchx.settings import ENV_TORCHX_INSECURE_REGISTRIES

_CERTIFICATES = ("/etc/docker/certs.d", "~/.config/docker/certs.d")


def is_insecure(host: str, env: Mapping[str, str] = os.environ) -> bool:
    """Whether a registry is spoken to without encryption: this machine, or one the user named.

    >>> is_insecure("localhost:5000"), is_insecure("example.com")
    (True, False)
    """
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    if name in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", name):
        return True
    named = re.split(r"[,;\s]+", env.get(ENV_TORCHX_INSECURE_REGISTRIES, ""))
    return host in named or name in named


def connect(parts: urllib.parse.SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    """A connection for a URL, through a proxy if the environment names one; not open yet."""
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:  # no port has that number
        host, port = "", None
    if not host or parts.scheme not in ("http", "https"):
        raise UnexpectedReply("the registry", f"the URL {parts.geturl()}")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = _tls_context(parts.netloc)
    proxy = urllib.request.getproxies().get("https")
    if proxy and not urllib.request.proxy_bypass(parts.netloc):
        return _through_proxy(proxy, parts, context, timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def untrusted(host: str, err: ssl.SSLCertVerificationError) -> str:
    """What to tell about a certificate."""
    return (
        f"the certificate of registry `{host}` is not trusted: {err.verify_message}; put its CA"
        f" into {_CERTIFICATES[0]}/{host}/ca.crt; if it speaks plain HTTP, name it in"
        f" {ENV_TORCHX_INSECURE_REGISTRIES}"
    )


def _tls_context(netloc: str) -> ssl.SSLContext:
    """What Docker trusts for this registry: the system's authorities and those in ``certs.d``."""
    context = ssl.create_default_context()
    if is_insecure(netloc):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
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
                except OSError as err:  # that of the ssl module too
                    raise InvalidInput(f"the certificate `{path}` cannot be used: {err}") from None
    return context


def _through_proxy(
    proxy: str, parts: urllib.parse.SplitResult, context: ssl.SSLContext, timeout_s: float
) -> http.client.HTTPConnection:
    try:
        to = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = to.hostname, to.port
    except ValueError:  # brackets that hold no address, a port that is no number
        host = None
    if not host:
        raise InvalidInput("the proxy in the environment is not a URL: write http://host:port")
    headers = {}
    if to.username:
        pair = f"{urllib.parse.unquote(to.username)}:{urllib.parse.unquote(to.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    connection.set_tunnel(parts.hostname or "", parts.port or 443, headers)
    return connection
