"""Names that clients of the published packages use: NeMo-Run and code written for release 0.7."""

from typing import Any

from torchx._docker import translate_errors
from torchx.errors import LogsNotFound
from torchx.specs.api import AppState

from ._logs import several_containers
from ._options import Opts
from ._request import LABEL_APP_ID, LABEL_REPLICA_ID, LABEL_ROLE_NAME
from ._states import CONTAINER_STATE

DockerOpts = Opts
"""Name of the options in release 0.7."""


def _to_str(a: "str | bytes") -> str:
    """Text as it is, bytes decoded (NeMo-Run)."""
    return a.decode("utf-8", "replace") if isinstance(a, bytes) else a


def unique_app_id(name: str) -> str:
    """Returns a new id for an app, from the function that clients may replace."""
    import torchx.schedulers.docker_scheduler as package

    return package.make_unique(name)


class SdkContainers:
    """Containers as objects of Docker's SDK (NeMo-Run), for a scheduler with ``_docker_client``."""

    _docker_client: Any

    def _get_containers(self, app_id: str) -> list[Any]:
        """Returns the containers of an app, in any state."""
        return self._listed([f"{LABEL_APP_ID}={app_id}"])

    def _get_container(self, app_id: str, role: str, replica_id: int) -> Any:
        """Returns the container of one replica; ``None`` if there is none."""
        labels = [
            f"{LABEL_APP_ID}={app_id}",
            f"{LABEL_ROLE_NAME}={role}",
            f"{LABEL_REPLICA_ID}={replica_id}",
        ]
        found = self._listed(labels)
        if len(found) > 1:
            raise LogsNotFound(several_containers(app_id, role, replica_id))
        return found[0] if found else None

    def _listed(self, labels: list[str]) -> list[Any]:
        with translate_errors("list containers"):
            found: list[Any] = self._docker_client.containers.list(
                all=True, filters={"label": labels}
            )
        return found

    def _get_app_state(self, container: Any) -> AppState:
        """Returns the state of a container."""
        if container.status == "exited":
            code = container.wait(timeout=10)["StatusCode"]
            return AppState.SUCCEEDED if code == 0 else AppState.FAILED
        return CONTAINER_STATE.get(container.status, AppState.UNKNOWN)
