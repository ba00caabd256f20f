"""The rules by which a cluster is chosen."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchx.errors import BackendUnavailable, InvalidInput
from torchx.schedulers._kube.config import Config, Pem
from torchx.schedulers._kube.discover import load_config
from torchx.schedulers._kube.errors import ConfigError, NoCluster


def kubeconfig(
    current: str = "dev", *, cluster: dict[str, Any] | None = None, user: Any = None, **context: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": "c", "cluster": cluster or {"server": "https://one:6443"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", **context}}],
    }


def write(path: Path, document: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def load(tmp_path: Path, document: object, context: str | None = None) -> Config:
    return load_config(write(tmp_path / "config", document), context, environ={})


def test_a_context_gives_cluster_user_and_namespace(tmp_path: Path) -> None:
    config = load(tmp_path, kubeconfig(user={"token": "t"}, namespace="team"))
    assert config.cluster.server == "https://one:6443"
    assert config.user.name == "u"
    assert config.user.token == "t"
    assert config.namespace == "team"
    assert config.context == "dev"


def test_a_context_without_namespace_names_none(tmp_path: Path) -> None:
    assert load(tmp_path, kubeconfig()).namespace is None


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    user = {"token": "geheim", "username": "me", "password": "geheim"}
    assert "geheim" not in repr(load(tmp_path, kubeconfig(user=user)))


def test_of_several_files_the_first_to_have_a_name_wins(tmp_path: Path) -> None:
    first = kubeconfig("", user={"token": "first"})
    second = kubeconfig("prod", user={"token": "second", "username": "x"})
    second["contexts"].append({"name": "prod", "context": {"cluster": "c", "user": "u"}})
    paths = [write(tmp_path / "a" / "1", first), write(tmp_path / "b" / "2", second)]
    listed = ":".join(["", *paths, str(tmp_path / "missing")])
    config = load_config(environ={"KUBECONFIG": listed})
    assert config.context == "prod"
    assert config.user.token == "first"
    assert config.user.basic is None


def test_relative_paths_are_those_of_the_file_that_names_them(tmp_path: Path) -> None:
    document = kubeconfig(
        cluster={"server": "https://one", "certificate-authority": "ca.pem"},
        user={"client-certificate": "me.pem", "client-key": "/abs/key", "tokenFile": "tok"},
    )
    path = write(tmp_path / "deep" / "config", document)
    config = load_config(environ={"KUBECONFIG": path})
    assert config.cluster.ca == Pem(path=str(tmp_path / "deep" / "ca.pem"))
    assert config.user.certificate == Pem(path=str(tmp_path / "deep" / "me.pem"))
    assert config.user.key == Pem(path="/abs/key")
    assert config.user.token_file == str(tmp_path / "deep" / "tok")


@pytest.mark.parametrize(
    ("command", "expected"), [("bin/login", "{folder}/bin/login"), ("login", "login")]
)
def test_a_plugin_is_relative_to_the_file_or_on_the_path(
    tmp_path: Path, command: str, expected: str
) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
    config = load(tmp_path, kubeconfig(user={"exec": plugin}))
    assert config.user.plugin is not None
    assert config.user.plugin.command == expected.format(folder=tmp_path)


def test_content_goes_before_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    cluster = {"server": "https://one", "certificate-authority": "x"}
    config = load(tmp_path, kubeconfig(cluster={**cluster, "certificate-authority-data": data}))
    assert config.cluster.ca == Pem(data=b"PEM")


@pytest.mark.parametrize(
    ("cluster", "server"),
    [
        ({"server": "https://h/k8s/clusters/c-1/"}, "https://h/k8s/clusters/c-1"),
        ({"server": "localhost:8080"}, "http://localhost:8080"),
        ({"server": "h:6443", "insecure-skip-tls-verify": True}, "https://h:6443"),
    ],
)
def test_servers(tmp_path: Path, cluster: dict[str, Any], server: str) -> None:
    assert load(tmp_path, kubeconfig(cluster=cluster)).cluster.server == server


def test_all_about_a_cluster_is_read(tmp_path: Path) -> None:
    cluster = {
        "server": "https://one",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
        "proxy-url": "socks5://p:1080",
        "disable-compression": True,
        "extensions": [
            {"name": "other", "extension": 1},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
        ],
    }
    found = load(tmp_path, kubeconfig(cluster=cluster)).cluster
    assert found.insecure
    assert found.tls_server_name == "kubernetes"
    assert found.proxy_url == "socks5://p:1080"
    assert not found.compress
    assert found.plugin_config == {"audience": "a"}


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    config = load(tmp_path, kubeconfig(user={"as": "bob", "as-groups": ["a", "b"], "as-uid": "1"}))
    assert config.user.impersonate == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )


def test_the_home_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".kube" / "config", kubeconfig(user={"token": "home"}))
    assert load_config(environ={}).user.token == "home"


def in_cluster(folder: Path) -> dict[str, str]:
    write(folder / "token", "from-the-pod\n")
    write(folder / "namespace", "jobs\n")
    write(folder / "ca.crt", "PEM")
    return {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def test_in_a_pod_its_account_goes_before_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".kube" / "config", kubeconfig(user={"token": "home"}))
    environ = in_cluster(tmp_path / "sa")
    config = load_config(environ=environ, service_account=tmp_path / "sa")
    assert config.cluster.server == "https://[fd00::1]:443"
    assert config.cluster.ca == Pem(path=str(tmp_path / "sa" / "ca.crt"))
    assert config.user.token_file == str(tmp_path / "sa" / "token")
    assert config.namespace == "jobs"


@pytest.mark.parametrize("explicit", ["kubeconfig", "KUBECONFIG", "context"])
def test_what_is_asked_for_goes_before_the_account_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explicit: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / ".kube" / "config", kubeconfig(user={"token": "asked"}))
    environ = in_cluster(tmp_path / "sa")
    if explicit == "KUBECONFIG":
        environ["KUBECONFIG"] = path
    config = load_config(
        path if explicit == "kubeconfig" else None,
        "dev" if explicit == "context" else None,
        environ,
        tmp_path / "sa",
    )
    assert config.user.token == "asked"


EXEC = {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "aws"}


@pytest.mark.parametrize(
    ("document", "context", "words"),
    [
        ("- a\n", None, ["is not a kubeconfig"]),
        ("a: [", None, ["is not YAML"]),
        ("", None, ["has no current context", "`context`", "none"]),
        (kubeconfig(""), None, ["has no current context", "dev"]),
        (kubeconfig(), "prod", ["no context `prod`", "it has: dev"]),
        (kubeconfig(cluster={"server": ""}), None, ["cluster `c`", "no `server`"]),
        ({**kubeconfig(), "clusters": None}, None, ["names the cluster `c`", "not there"]),
        ({**kubeconfig(), "users": []}, None, ["names the user `u`", "not there"]),
        ({**kubeconfig(), "users": {"a": 1}}, None, ["`users` must be a list"]),
        ({**kubeconfig(), "users": [{"user": {}}]}, None, ["entry of `users` has no name"]),
        (kubeconfig(user={"client-key-data": "%"}), None, ["`client-key-data`", "not base64"]),
        (kubeconfig(user={"auth-provider": {"name": "gcp"}}), None, ["auth-provider `gcp`"]),
        (kubeconfig(user={"exec": {"args": []}}), None, ["`exec` of user `u`", "no `command`"]),
        (kubeconfig(user={"exec": EXEC}), None, ["v1alpha1", "client.authentication.k8s.io/v1"]),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, document: object, context: str | None, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document, context)
    message = str(caught.value)
    assert isinstance(caught.value, InvalidInput)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("how", ["kubeconfig", "KUBECONFIG", "home"])
def test_no_kubeconfig_is_told_and_may_be_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = str(tmp_path / "none")
    environ = {"KUBECONFIG": path} if how == "KUBECONFIG" else {}
    with pytest.raises(NoCluster, match=r"exist") as caught:
        load_config(path if how == "kubeconfig" else None, environ=environ)
    assert isinstance(caught.value, BackendUnavailable)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with pytest.raises(ConfigError, match=r"config` cannot be read: Is a directory"):
        load_config(str(tmp_path / "config"), environ={})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary` cannot be read: it is not UTF-8"):
        load_config(str(tmp_path / "binary"), environ={})
