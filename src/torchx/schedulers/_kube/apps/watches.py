"""Waits for changes of apps without polling."""

import time

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.errors import ApiError
from torchx.schedulers._kube.watch import Watch

from .look import Looked

logger = get_logger(__name__)


class Watches:
    """The watches of the apps that are waited for; each is opened once."""

    def __init__(self) -> None:
        self._open: dict[str, Watch] = {}

    def wait(self, kube: KubeClient, looked: Looked, timeout_s: float) -> None:
        """Returns when an object of the app has changed since the query, or after the timeout."""
        app_id = looked.app.id
        watch = self._open.get(app_id)
        if watch is None:
            watch = Watch(kube, looked.lists)
            watch.__enter__()
            self._open[app_id] = watch
        try:
            watch.wait(timeout_s)
        except ApiError as err:
            logger.warning("changes of `%s` are not reported: %s", app_id, err)
            self.close(app_id)
            time.sleep(timeout_s)

    def close(self, app_id: str | None = None) -> None:
        """Closes the watch of an app, or all for ``None``."""
        for name in [app_id] if app_id is not None else [*self._open]:
            watch = self._open.pop(name, None)
            if watch is not None:
                watch.__exit__(None, None, None)
