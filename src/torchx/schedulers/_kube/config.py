"""Kubeconfigs: reads their text, merges several, chooses a context. No I/O.

The rules are kubectl's, see
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Any

from torchx._startup.dataclass import field, light_dataclass

from .errors import ConfigError

EXEC_GROUP = "client.authentication.k8s.io"
EXEC_VERSIONS = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1")

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}


@light_dataclass(frozen=True)
class Pem:
    """A certificate or key: a file, or its content."""

    path: str = ""
    data: bytes = field(default=b"", repr=False)


@light_dataclass(frozen=True)
class ExecPlugin:
    """A program that prints credentials."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = EXEC_VERSIONS[0]
    install_hint: str = ""
    cluster_info: bool = False
    interactive: str = "IfAvailable"


@light_dataclass(frozen=True)
class Credential:
    """The credential that a plugin printed; ``expires_s`` is in seconds since the epoch."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    expires_s: float | None = None


@light_dataclass(frozen=True)
class User:
    """The user of a context, with the credentials."""

    name: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate: Pem | None = None
    key: Pem | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    plugin: ExecPlugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()


@light_dataclass(frozen=True)
class Cluster:
    """The address of the API server and how it is authenticated."""

    server: str
    name: str = ""
    ca: Pem | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    compress: bool = True
    plugin_config: Any = None


@light_dataclass(frozen=True)
class Config:
    """A chosen context; ``namespace`` is ``None`` if it names none.

    Args:
        source: path of the kubeconfig; of several as ``KUBECONFIG`` lists them.
    """

    cluster: Cluster
    user: User = User()
    namespace: str | None = None
    context: str = ""
    source: str = ""


@light_dataclass(frozen=True)
class Kubeconfig:
    """The content of one kubeconfig, or of several merged ones."""

    source: str
    current_context: str = ""
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contexts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def parse_kubeconfig(document: object, path: str) -> Kubeconfig:
    """Parses the loaded YAML of the file at ``path``; relative paths refer to its folder."""
    if document is None:
        return Kubeconfig(path)
    if not isinstance(document, Mapping):
        raise ConfigError(f"`{path}` is not a kubeconfig: a mapping is expected")
    folder = os.path.dirname(os.path.abspath(path))
    named = {key: _named(document.get(key), key, path, folder) for key in _LISTS}
    return Kubeconfig(path, str(document.get("current-context") or ""), **named)


def _named(entries: object, key: str, path: str, folder: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the entries of one list by name; the first of a name wins."""
    found: dict[str, Mapping[str, Any]] = {}
    if not isinstance(entries, list | None):
        raise ConfigError(f"`{path}` is not a kubeconfig: `{key}` must be a list")
    for entry in entries or ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str | int | float):
            raise ConfigError(f"`{path}` is not a kubeconfig: an entry of `{key}` has no name")
        body = entry.get(_LISTS[key]) or {}
        if not isinstance(body, Mapping):
            raise ConfigError(f"`{path}`: `{entry['name']}` of `{key}` must be a mapping")
        found.setdefault(str(entry["name"]), _with_absolute_paths(body, _PATHS[key], folder))
    return found


def _with_absolute_paths(
    body: Mapping[str, Any], keys: Sequence[str], folder: str
) -> Mapping[str, Any]:
    absolute: dict[str, Any] = {k: os.path.join(folder, body[k]) for k in keys if body.get(k)}
    plugin = body.get("exec")
    if isinstance(plugin, Mapping) and os.sep in str(plugin.get("command") or ""):
        absolute["exec"] = {**plugin, "command": os.path.join(folder, str(plugin["command"]))}
    return {**body, **absolute}


def merge(files: Sequence[Kubeconfig]) -> Kubeconfig:
    """Merges several kubeconfigs: the first with a name, or a current context, wins."""
    names = [file.source for file in files]

    def entries(key: str) -> Mapping[str, Mapping[str, Any]]:
        merged: dict[str, Mapping[str, Any]] = {}
        for file in files:
            for name, body in getattr(file, key).items():
                merged.setdefault(name, body)
        return merged

    current = next((file.current_context for file in files if file.current_context), "")
    named = {key: entries(key) for key in _LISTS}
    return Kubeconfig(os.pathsep.join(names), current, **named)


def choose(config: Kubeconfig, context: str | None = None) -> Config:
    """Returns the cluster, user and namespace of a context, by default of the current one."""
    name = context or config.current_context
    if name not in config.contexts:
        raise ConfigError(_unknown_context(config, name))
    chosen = config.contexts[name]
    cluster_name, user_name = str(chosen.get("cluster") or ""), str(chosen.get("user") or "")
    for what, key, known in (
        ("cluster", cluster_name, config.clusters),
        ("user", user_name, config.users),
    ):
        if key not in known and (key or what == "cluster"):
            msg = f"context `{name}` of `{config.source}` names the {what} `{key}`"
            raise ConfigError(f"{msg}, which is not there")
    return Config(
        cluster=_cluster(cluster_name, config.clusters[cluster_name], config.source),
        user=_user(user_name, config.users.get(user_name, {}), config.source),
        namespace=str(chosen["namespace"]) if chosen.get("namespace") else None,
        context=name,
        source=config.source,
    )


def _unknown_context(config: Kubeconfig, name: str) -> str:
    known = ", ".join(sorted(config.contexts)) or "none"
    if not name:
        return (
            f"`{config.source}` has no current context: set the option `context`, "
            f"or choose one with `kubectl config use-context`; it has: {known}"
        )
    return f"`{config.source}` has no context `{name}`; it has: {known}"


def _cluster(name: str, body: Mapping[str, Any], source: str) -> Cluster:
    ca = _pem(body, "certificate-authority", source)
    insecure = bool(body.get("insecure-skip-tls-verify"))
    if ca and insecure:
        msg = f"cluster `{name}` of `{source}` has both an authority and insecure-skip-tls-verify"
        raise ConfigError(f"{msg}: remove one")
    server = str(body.get("server") or "")
    if not server:
        raise ConfigError(f"cluster `{name}` of `{source}` has no `server`")
    if "://" not in server:
        server = ("https://" if ca or insecure else "http://") + server
    return Cluster(
        server=server.rstrip("/"),
        name=name,
        ca=ca,
        insecure=insecure,
        tls_server_name=str(body.get("tls-server-name") or ""),
        proxy_url=str(body.get("proxy-url") or ""),
        compress=not body.get("disable-compression"),
        plugin_config=_extension(body.get("extensions"), f"{EXEC_GROUP}/exec"),
    )


def _extension(entries: object, name: str) -> Any:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name:
            return entry.get("extension")
    return None


def _user(name: str, body: Mapping[str, Any], source: str) -> User:
    where = f"user `{name}` of `{source}`"
    if isinstance(body.get("auth-provider"), Mapping):
        kind = body["auth-provider"].get("name")
        msg = f"{where} logs in by the auth-provider `{kind}`, which kubectl has given up as well"
        raise ConfigError(f"{msg}: use a credential plugin (`exec`) or a token")
    basic = (str(body.get("username")), str(body.get("password") or ""))
    return User(
        name=name,
        token=str(body.get("token") or ""),
        token_file=str(body.get("tokenFile") or ""),
        certificate=_pem(body, "client-certificate", source),
        key=_pem(body, "client-key", source),
        basic=basic if body.get("username") else None,
        plugin=_plugin(body.get("exec"), where),
        impersonate=_impersonation(body),
    )


def _pem(body: Mapping[str, Any], key: str, source: str) -> Pem | None:
    """Returns a certificate or key; content in the kubeconfig wins over a file."""
    data = body.get(f"{key}-data")
    if data:
        try:
            return Pem(data=base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError, TypeError):
            raise ConfigError(f"`{key}-data` in `{source}` is not base64") from None
    return Pem(path=str(body[key])) if body.get(key) else None


def _impersonation(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if body.get("as"):
        headers.append(("Impersonate-User", str(body["as"])))
    if body.get("as-uid"):
        headers.append(("Impersonate-Uid", str(body["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in body.get("as-groups") or ()]
    return tuple(headers)


def _plugin(body: object, where: str) -> ExecPlugin | None:
    if body is None:
        return None
    if not isinstance(body, Mapping) or not body.get("command"):
        raise ConfigError(f"`exec` of {where} has no `command`")
    version = str(body.get("apiVersion") or "")
    if version not in EXEC_VERSIONS:
        msg = f"`exec` of {where} has the apiVersion `{version}`"
        known = " and ".join(EXEC_VERSIONS)
        raise ConfigError(f"{msg}, known are {known}; update the plugin and write its entry again")
    return ExecPlugin(
        command=str(body["command"]),
        args=tuple(str(arg) for arg in body.get("args") or ()),
        env=tuple((str(e["name"]), str(e.get("value", ""))) for e in body.get("env") or ()),
        api_version=version,
        install_hint=str(body.get("installHint") or "").strip(),
        cluster_info=bool(body.get("provideClusterInfo")),
        interactive=str(body.get("interactiveMode") or "IfAvailable"),
    )
