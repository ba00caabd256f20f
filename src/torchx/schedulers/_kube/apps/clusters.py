"""The clusters that a scheduler uses, and its cached data about apps on them."""

import os
import time
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import field, light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._core import records
from torchx.schedulers._core.executing import ExecRequest
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers._kube.errors import ConfigError, NoCluster

from .app import App, main_container

if TYPE_CHECKING:
    from torchx.schedulers._kube.client import KubeClient
    from torchx.schedulers._kube.config import Config
    from torchx.schedulers._kube.pods import PodPort

    from .look import Looked
    from .watches import Watches

logger = get_logger(__name__)

FIRST_NEWS_S = 2.0
"""Seconds until a missing reason is queried again; after some queries four times that."""

Home = tuple[str | None, str | None]
"""Kubeconfig and context; ``None`` for the user's default."""


@light_dataclass
class Clusters:
    """Clients by kubeconfig and context, created on first use, and the last result for each app.

    Args:
        given: a client that replaces all others.
        scheduler: name under which the location of apps is recorded.
    """

    given: Any = None
    scheduler: str = "kubernetes"
    homes: dict[str, Home] = field(default_factory=dict)
    """Location of apps, as far as it is known."""
    looked: "dict[str, Looked]" = field(default_factory=dict)
    _clients: "dict[Home, KubeClient]" = field(default_factory=dict)
    _configs: "dict[Home, Config]" = field(default_factory=dict)
    _unexplained: dict[str, int] = field(default_factory=dict)
    """Consecutive queries of apps that do not start, without a reason."""
    _watches: "Watches | None" = None

    def kube(self, home: Home = (None, None)) -> "KubeClient":
        """Returns the client of a cluster."""
        if self.given is not None:
            home = (None, None)
            if home not in self._clients:
                from .adapted import adapted

                self._clients[home] = adapted(self.given)
            return self._clients[home]
        if home not in self._clients:
            from torchx.schedulers._kube.connect import connect

            self._clients[home], self._configs[home] = connect(*home)
        return self._clients[home]

    def settle(self, app_id: str, home: Home) -> None:
        """Records where an app was submitted, also for later commands of this user."""
        self.homes[app_id] = home
        config = self._configs.get(home)
        if config is not None and config.context:
            paths = map(os.path.abspath, config.source.split(os.pathsep))
            place = {"kubeconfig": os.pathsep.join(paths), "context": config.context}
            records.remember(self.scheduler, app_id, place)

    def reachable(self, home: Home) -> str:
        """Returns an empty text if there is a cluster; else the reason why there is none."""
        if self.given is None:
            from torchx.schedulers._kube.discover import load_config

            try:
                load_config(*home)
            except NoCluster as err:
                return str(err)
        return ""

    def namespace(self, given: str | None, home: Home) -> str:
        """Returns the given namespace, else that of the context, else ``default``."""
        if given:
            return given
        from torchx.schedulers._kube.discover import load_config

        try:
            return load_config(*home).namespace or "default"
        except NoCluster:
            return "default"

    def place(self, app_id: str) -> tuple[Home, str, str]:
        """Returns cluster, namespace and name of an app."""
        if app_id not in self.homes:
            self.homes[app_id] = self._noted(app_id)
        home = self.homes[app_id]
        namespace, colon, name = app_id.partition(":")
        if not colon:
            namespace, name = self.namespace(None, home), app_id
        return home, namespace, name

    def _noted(self, app_id: str) -> Home:
        """Returns where this user submitted an app; the user's default if unknown."""
        place = records.recall(self.scheduler, app_id) if self.given is None else None
        if place is None:
            return None, None
        home = str(place.get("kubeconfig") or "") or None, str(place.get("context") or "") or None
        from torchx.schedulers._kube.discover import load_config

        try:
            load_config(*home)
        except ConfigError as err:
            logger.debug("`%s` is searched in the current context: %s", app_id, err)
            return None, None
        return home

    def puzzled(self, app_id: str, by_it: bool) -> None:
        """Records whether the last query found an app that does not start, without a reason."""
        if by_it:
            self._unexplained[app_id] = self._unexplained.get(app_id, 0) + 1
        else:
            self._unexplained.pop(app_id, None)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        """Returns when an object of the app has changed, at the latest after the timeout.

        Reasons known from events alone, which are not watched, are queried again earlier.
        """
        looked = self.looked.get(app_id)
        if looked is None or not looked.lists:  # or queried with others: no version to watch from
            time.sleep(timeout_s)
            return
        if looks := self._unexplained.get(looked.app.id):
            timeout_s = min(timeout_s, FIRST_NEWS_S * 2 ** min(looks - 1, 2))
        if self._watches is None:
            from .watches import Watches

            self._watches = Watches()
        home, _, _ = self.place(looked.app.id)
        self._watches.wait(self.kube(home), looked, timeout_s)

    def execute(
        self, app: "App | None", snapshot: AppSnapshot, pod: str, request: ExecRequest
    ) -> int:
        """Runs a command in the container of a replica and returns its exit code.

        Args:
            app: its objects; ``None`` if they are gone.
            pod: name of the replica's pod.
        """
        from torchx.schedulers._kube.pods import execute

        home, namespace, _ = self.place(snapshot.app_id)
        container = "" if app is None else main_container(app, pod)
        return execute(self.kube(home), namespace, pod, container, request)

    def open_port(self, snapshot: AppSnapshot, pod: str, port: int) -> "PodPort":
        """Opens a connection to a port of the pod, through the API server."""
        from torchx.schedulers._kube.pods import PodPort

        home, namespace, _ = self.place(snapshot.app_id)
        return PodPort(self.kube(home), namespace, pod, port)

    def removed(self, app_id: str) -> None:
        """Drops all data about an app that was removed."""
        self.forget(app_id)
        if self.given is None:
            records.forget(self.scheduler, app_id)

    def forget(self, app_id: str) -> None:
        """Drops the data about an app, except its location."""
        self.looked.pop(app_id, None)
        self._unexplained.pop(app_id, None)
        self.stop_watching(app_id)

    def stop_watching(self, app_id: str | None = None) -> None:
        """Closes the watch of an app, or all for ``None``."""
        if self._watches is not None:
            self._watches.close(app_id)

    def close(self) -> None:
        """Closes connections; they are opened again when needed."""
        self.stop_watching()
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.transport.close()
        self.looked.clear()
