"""Which proxy leads to a server."""

import pytest

from torchx.schedulers._kube.config import Cluster
from torchx.schedulers._kube.proxies import proxy_of

SERVER = "https://api.corp.example:6443"


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        (SERVER, {}, ""),
        (SERVER, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        (SERVER, {"https_proxy": "p:1"}, "http://p:1"),
        (SERVER, {"HTTP_PROXY": "http://p:1"}, ""),
        (SERVER, {"ALL_PROXY": "socks5://p:1"}, "socks5://p:1"),
        ("http://api:80", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https://localhost:1", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p:1"}, ""),
    ],
)
def test_from_the_environment(server: str, environ: dict[str, str], proxy: str) -> None:
    assert proxy_of(Cluster(server), environ) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "bypassed"),
    [
        (SERVER, "*", True),
        (SERVER, "other, corp.example", True),
        (SERVER, ".corp.example", True),
        (SERVER, "*.corp.example", True),
        (SERVER, "rp.example", False),
        (SERVER, "api.corp.example:6443", True),
        (SERVER, "api.corp.example:443", False),
        ("https://corp.example", ".corp.example", False),
        ("https://10.2.3.4", "10.0.0.0/8", True),
        ("https://11.2.3.4", "10.0.0.0/8", False),
        (SERVER, "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
    ],
)
def test_no_proxy_is_read_as_kubectl_does(server: str, no_proxy: str, bypassed: bool) -> None:
    environ = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy}
    assert proxy_of(Cluster(server), environ) == ("" if bypassed else "http://p:1")


def test_the_proxy_of_the_cluster_goes_first() -> None:
    cluster = Cluster("https://127.0.0.1", proxy_url="http://mine:1")
    assert proxy_of(cluster, {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}) == "http://mine:1"
