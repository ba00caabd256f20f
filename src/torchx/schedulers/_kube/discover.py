"""Finds and reads the kubeconfigs, or the account of the pod that this runs in."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from .config import Cluster, Config, Kubeconfig, Pem, User, choose, merge, parse_kubeconfig
from .errors import ConfigError, NoCluster

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_config(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """Finds the cluster to use.

    A given ``kubeconfig`` comes first, then those of ``KUBECONFIG``, then, inside a pod and without
    a ``context``, the pod's own account, then ``~/.kube/config``.

    Raises:
        NoCluster: if none of these exists.
        ConfigError: for a file that cannot be read, an unknown context and the like.
    """
    if kubeconfig and os.pathsep not in kubeconfig:
        return choose(_read(os.path.expanduser(kubeconfig)), context)
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if listed := [path for path in named.split(os.pathsep) if path]:
        files = [_read(path) for path in listed if os.path.exists(path)]
        if not files:
            raise NoCluster(f"none of the files in KUBECONFIG exists: {', '.join(listed)}")
        return choose(merge(files), context)
    if not context and (config := _in_cluster(environ, service_account)):
        return config
    home = os.path.join(os.path.expanduser("~"), ".kube", "config")
    if os.path.exists(home):
        return choose(_read(home), context)
    msg = f"no kubeconfig: KUBECONFIG is not set and `{home}` does not exist"
    raise NoCluster(f"{msg}; set the option `kubeconfig`, or log in to your cluster")


def _read(path: str) -> Kubeconfig:
    try:
        found = os.stat(path)
    except OSError:
        return _parsed(path, ())  # its error names the reason
    return _parsed(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=8)
def _parsed(path: str, _version: tuple[int, ...]) -> Kubeconfig:
    """Parses a kubeconfig, cached: one command reads it several times."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoCluster(f"kubeconfig `{path}` does not exist") from None
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"kubeconfig `{path}` cannot be read: {reason}") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return parse_kubeconfig(yaml.load(text, Loader=loader), path)
    except yaml.YAMLError as err:
        reason = " ".join(str(err).split())
        raise ConfigError(f"kubeconfig `{path}` is not YAML: {reason}") from None


def _in_cluster(environ: Mapping[str, str], folder: Path) -> Config | None:
    """Returns the config of the pod's account; ``None`` if there is none with a token."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (folder / "token").exists():
        return None
    if ":" in host:
        host = f"[{host}]"
    namespace = folder / "namespace"
    ca = folder / "ca.crt"
    return Config(
        cluster=Cluster(
            f"https://{host}:{port}",
            name="in-cluster",
            ca=Pem(path=str(ca)) if ca.exists() else None,
        ),
        user=User(name="the pod's service account", token_file=str(folder / "token")),
        namespace=namespace.read_text().strip() or None if namespace.exists() else None,
    )
