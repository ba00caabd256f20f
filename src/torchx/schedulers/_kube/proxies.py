"""Finds the proxy for the server."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from .config import Cluster


def proxy_of(cluster: Cluster, environ: Mapping[str, str] = os.environ) -> str:
    """Returns the ``proxy-url`` of the cluster, else the environment's proxy; empty for none.

    ``NO_PROXY`` is interpreted like kubectl does: names with their subdomains, addresses, networks,
    ``*``.
    """
    if cluster.proxy_url:
        return cluster.proxy_url
    scheme = urlsplit(cluster.server).scheme
    proxy = _variable(environ, f"{scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy or _bypassed(cluster.server, _variable(environ, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _bypassed(server: str, no_proxy: str) -> bool:
    url = urlsplit(server)
    host = (url.hostname or "").lower()
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return True
    port = url.port or (443 if url.scheme == "https" else 80)
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return any(_matches(entry, host, port) for entry in entries if entry)


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(host, entry)
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and ":" not in name:
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")


def _in_network(host: str, network: str) -> bool:
    import ipaddress  # only where NO_PROXY has networks

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
