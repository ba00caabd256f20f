"""Tokens and certificates: from files that rotate and from plugins, which are real programs."""

import json
import os
from pathlib import Path

import pytest

from torchx.schedulers._kube.config import Cluster, Config, Credential, ExecPlugin, Pem, User
from torchx.schedulers._kube.credentials import Credentials
from torchx.schedulers._kube.errors import ConfigError, PluginFailed
from torchx.schedulers._kube.plugin import run_plugin

CLUSTER = Cluster("https://one:6443", ca=Pem(data=b"PEM"), plugin_config={"audience": "a"})
V1 = "client.authentication.k8s.io/v1"


def credentials_of(user: User, now: list[float] | None = None) -> Credentials:
    clock = now if now is not None else [0.0]
    return Credentials(Config(CLUSTER, user), now_s=lambda: clock[0])


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        (User(), []),
        (User(token="t"), [("Authorization", "Bearer t")]),
        (User(basic=("me", "pw")), [("Authorization", "Basic bWU6cHc=")]),
        (
            User(token="t", impersonate=(("Impersonate-User", "bob"),)),
            [("Impersonate-User", "bob"), ("Authorization", "Bearer t")],
        ),
    ],
)
def test_headers(user: User, headers: list[tuple[str, str]]) -> None:
    assert credentials_of(user).headers() == headers


def test_a_token_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    now = [100.0]
    credentials = credentials_of(User(token="fixed", token_file=str(path)), now)
    assert credentials.headers() == [("Authorization", "Bearer one")]
    path.write_text("two")
    assert credentials.headers() == [("Authorization", "Bearer one")]
    now[0] += 11
    assert credentials.headers() == [("Authorization", "Bearer two")]
    path.unlink()
    now[0] += 11
    assert credentials.headers() == [("Authorization", "Bearer two")]


def test_a_token_file_is_read_at_once_when_the_server_rejects_its_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = credentials_of(User(token_file=str(path)))
    rejected = credentials.headers()
    assert not credentials.refresh(rejected)
    path.write_text("two")
    assert credentials.refresh(rejected)
    assert credentials.headers() == [("Authorization", "Bearer two")]


def test_a_missing_token_file_is_told(tmp_path: Path) -> None:
    credentials = credentials_of(User(name="me", token_file=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"token file .*none` of user `me` cannot be read"):
        credentials.headers()


def test_a_fixed_token_cannot_be_renewed() -> None:
    credentials = credentials_of(User(token="t"))
    assert not credentials.refresh(credentials.headers())


class CountedPlugin:
    """Gives a new token at each run."""

    def __init__(self, lifetime_s: float | None) -> None:
        self.runs = 0
        self.lifetime_s = lifetime_s

    def __call__(self, plugin: ExecPlugin, cluster: Cluster) -> Credential:
        self.runs += 1
        expires_s = None if self.lifetime_s is None else self.runs * self.lifetime_s
        return Credential(token=f"t{self.runs}", expires_s=expires_s)


def test_a_plugin_runs_again_when_its_credential_expires() -> None:
    plugin, now = CountedPlugin(100), [0.0]
    user = User(plugin=ExecPlugin("login"))
    credentials = Credentials(Config(CLUSTER, user), plugin, lambda: now[0])
    for now_s, token in ((0, "t1"), (94, "t1"), (96, "t2"), (190, "t2")):
        now[0] = now_s
        assert credentials.headers() == [("Authorization", f"Bearer {token}")]
        assert credentials.certificate() is None
    assert plugin.runs == 2


def test_a_plugin_runs_again_once_for_all_requests_that_were_rejected() -> None:
    plugin = CountedPlugin(None)
    credentials = Credentials(Config(CLUSTER, User(plugin=ExecPlugin("login"))), plugin)
    rejected = credentials.headers()
    assert credentials.refresh(rejected)
    assert credentials.headers() == [("Authorization", "Bearer t2")]
    assert credentials.refresh(rejected)  # another request, sent with the first token
    assert credentials.headers() == [("Authorization", "Bearer t2")]
    assert plugin.runs == 2


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def credential(version: str = V1, **status: str) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def test_a_plugin_gets_its_arguments_and_the_cluster(tmp_path: Path) -> None:
    out = tmp_path / "seen"
    script = (
        f'echo "$@" >{out}; echo "$REGION" >>{out}; echo "$KUBERNETES_EXEC_INFO" >>{out}\n'
        f"echo '{credential(token='tok', expirationTimestamp='2026-01-02T03:04:05.123456789Z')}'"
    )
    plugin = ExecPlugin(
        program(tmp_path, script),
        args=("get-token", "--cluster"),
        env=(("REGION", "eu"),),
        cluster_info=True,
    )
    found = run_plugin(plugin, CLUSTER)
    assert found == Credential(token="tok", expires_s=1767323045.0)
    args, region, info = out.read_text().splitlines()
    assert args == "get-token --cluster"
    assert region == "eu"
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://one:6443",
                "certificate-authority-data": "UEVN",
                "config": {"audience": "a"},
            },
        },
    }


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1beta1"
    status = credential(version, clientCertificateData="CERT", clientKeyData="KEY")
    user = User(plugin=ExecPlugin(program(tmp_path, f"echo '{status}'"), api_version=version))
    credentials = credentials_of(user)
    assert credentials.certificate() == (Pem(data=b"CERT"), Pem(data=b"KEY"))
    assert credentials.headers() == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'please log in' >&2; exit 3", "failed with exit code 3: please log in"),
        ("exit 1", "failed with exit code 1: no word"),
        ("echo hello", "printed something else than a credential"),
        ("echo '[]'", "printed something else than a credential"),
        (f"echo '{credential()}'", "printed neither a token nor a certificate"),
        (f"echo '{credential(clientKeyData='K')}'", "without the other"),
        (
            f"echo '{credential('v2', token='t')}'",
            f"apiVersion `v2`, the kubeconfig expects `{V1}`",
        ),
    ],
)
def test_a_plugin_that_fails_is_quoted(tmp_path: Path, script: str, words: str) -> None:
    plugin = ExecPlugin(program(tmp_path, script), install_hint="get it\nfrom the shop")
    with pytest.raises(PluginFailed) as caught:
        run_plugin(plugin, CLUSTER)
    message = str(caught.value)
    assert f"{plugin.command}` " in message
    assert words in message
    assert message.endswith("; get it from the shop")


def test_a_plugin_that_says_more_than_a_pipe_holds(tmp_path: Path) -> None:
    many = f"head -c 200000 /dev/zero | tr '\\0' x >&2; echo '{credential(token='t')}'"
    assert run_plugin(ExecPlugin(program(tmp_path, many)), CLUSTER).token == "t"


def test_a_missing_plugin_is_told_with_the_hint() -> None:
    plugin = ExecPlugin("no-such-login", install_hint="install it by `x`")
    with pytest.raises(PluginFailed, match=r"no-such-login` is not installed.*; install it by `x`"):
        run_plugin(plugin, CLUSTER)


def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    plugin = ExecPlugin("login", interactive="Always")
    with os.fdopen(read) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        with pytest.raises(PluginFailed, match="there is no terminal"):
            run_plugin(plugin, CLUSTER)
