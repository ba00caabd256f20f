"""The clusters that a scheduler talks to, and what it knows of the apps on them."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchx.schedulers._kube.errors import NoCluster

if TYPE_CHECKING:
    from torchx.schedulers._kube.client import KubeClient

    from .look import Looked
    from .watches import Watches

Home = tuple[str | None, str | None]
"""Kubeconfig and context; ``None`` for the user's own choice."""


@dataclass
class Clusters:
    """Clients by kubeconfig and context, made on first use; and the last look at each app.

    Args:
        given: the client to use instead, for all of them.
    """

    given: Any = None
    homes: dict[str, Home] = field(default_factory=dict)
    """Of apps that were submitted to a context that was named."""
    looked: "dict[str, Looked]" = field(default_factory=dict)
    _clients: "dict[Home, KubeClient]" = field(default_factory=dict)
    _watches: "Watches | None" = None

    def kube(self, home: Home = (None, None)) -> "KubeClient":
        """The client of a cluster."""
        if self.given is not None:
            client: KubeClient = self.given
            return client
        if home not in self._clients:
            from torchx.schedulers._kube.connect import connect

            self._clients[home] = connect(*home)[0]
        return self._clients[home]

    def reachable(self, home: Home) -> str:
        """Empty if there is a cluster to ask; else why there is none."""
        if self.given is None:
            from torchx.schedulers._kube.discover import load_config

            try:
                load_config(*home)
            except NoCluster as err:
                return str(err)
        return ""

    def namespace(self, given: str | None, home: Home) -> str:
        """The namespace that was given, else that of the context, else ``default``."""
        if given:
            return given
        from torchx.schedulers._kube.discover import load_config

        try:
            return load_config(*home).namespace or "default"
        except NoCluster:
            return "default"

    def place(self, app_id: str) -> tuple[Home, str, str]:
        """Cluster, namespace and name of an app."""
        home = self.homes.get(app_id, (None, None))
        namespace, colon, name = app_id.partition(":")
        if not colon:
            namespace, name = self.namespace(None, home), app_id
        return home, namespace, name

    def wait(self, looked: "Looked", timeout_s: float) -> None:
        """Returns when an object of the app has changed, at the latest after the time."""
        if not looked.lists:  # one of many that were looked at together: nothing to go on from
            time.sleep(timeout_s)
            return
        if self._watches is None:
            from .watches import Watches

            self._watches = Watches()
        home, _, _ = self.place(looked.app.id)
        self._watches.wait(self.kube(home), looked, timeout_s)

    def forget(self, app_id: str) -> None:
        """Drops what is known of an app."""
        self.looked.pop(app_id, None)
        self.stop_watching(app_id)

    def stop_watching(self, app_id: str | None = None) -> None:
        """Closes the watch of an app, all for ``None``."""
        if self._watches is not None:
            self._watches.close(app_id)

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        self.stop_watching()
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.transport.close()
        self.looked.clear()
