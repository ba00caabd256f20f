"""A client for the cluster that the user's kubeconfig chooses."""

from torchx.errors import NotInstalled

from .client import KubeClient
from .config import Config
from .discover import load_config
from .retry import Patience


def connect(
    kubeconfig: str | None = None, context: str | None = None, patience: Patience | None = None
) -> tuple[KubeClient, Config]:
    """Returns a client, and the chosen context; nothing is sent yet.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) without the packages of the extra.
        NoCluster, ConfigError: from ``load_config``.
    """
    try:
        from .transport import HttpTransport
    except ModuleNotFoundError as err:
        if err.name not in ("httpcore", "anyio"):
            raise
        msg = f"the Kubernetes schedulers need the Python package `{err.name}`"
        raise NotInstalled(msg, name=err.name, extra="kubernetes") from None
    config = load_config(kubeconfig, context)
    return KubeClient(HttpTransport(config), config.user.name, patience), config
