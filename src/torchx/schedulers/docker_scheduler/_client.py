"""The scheduler's calls to the Docker daemon."""

import time
from collections.abc import Sequence
from typing import Any

from torchx._docker import (
    connect,
    image_record,
    in_parallel,
    translate_errors,
    unavailable,
    with_retries,
)
from torchx.errors import BackendUnavailable, DockerNotInstalled, DockerRefused, TorchXError
from torchx.schedulers.api import AppSnapshot

from . import _ending, _launcher
from ._events import EVENT_LAG_NS, EventCursor
from ._request import LABEL_APP_ID, DockerContainer
from ._states import (
    Container,
    Details,
    Ended,
    build_snapshot,
    needs_details,
    parse_container,
    parse_details,
)
from ._times import parse_ns

_CONNECT_S = 10.0
_MOST_ENDS = 10_000


def has_docker() -> bool:
    """Returns True if the Python package is installed and a daemon answers."""
    try:
        connect().close()
    except (DockerNotInstalled, BackendUnavailable):
        return False
    return True


class Daemon:
    """The scheduler's calls to the daemon.

    Args:
        client: client of Docker's SDK.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.api = client.api
        self.cursors: dict[str, EventCursor] = {}
        """Event cursors by app, so that no event is missed between two waits."""
        self._skew_ns: int | None = None
        self._images: dict[str, str] = {}
        """Names of images by their ids."""
        self._ends: dict[tuple[str, int | None], Details] = {}
        """Records of ended containers, which do not change, by id and exit code."""

    # -- apps -------------------------------------------------------------------------------

    def look(self, app_id: str) -> AppSnapshot | None:
        """Returns the snapshot of an app, from its containers and marks, and records if needed."""
        looked_ns = time.time_ns()
        containers = self.containers(app_id)
        if not containers:
            self.cursors.pop(app_id, None)
            return None
        # requested after the containers: a mark is set before its containers end
        ended = _ending.marks(self, app_id).get(app_id, Ended())
        self.cursors.setdefault(app_id, EventCursor(looked_ns - EVENT_LAG_NS))
        wanted = [c for c in containers if needs_details(c)]
        images = {image: self.image_name(image) for image in {c.image_id for c in containers}}
        return build_snapshot(
            app_id,
            containers,
            self._details_of(wanted),
            {image: name for image, name in images.items() if name is not None},
            ended,
            self._abandoned(containers),
        )

    def look_all(self) -> list[AppSnapshot]:
        """Returns all apps, latest first, from all containers and all marks."""
        containers = self.containers()
        ended = _ending.marks(self) if containers else {}
        unclear = [c for c in containers if c.status == "exited" and c.exit_code is None]
        details = self._details_of(unclear)
        apps: dict[str, list[Container]] = {}
        for container in containers:
            apps.setdefault(container.app_id, []).append(container)
        return [
            build_snapshot(
                app_id, found, details, {}, ended.get(app_id, Ended()), self._abandoned(found)
            )
            for app_id, found in apps.items()
        ]

    def _details_of(self, containers: Sequence[Container]) -> dict[str, Details]:
        """Returns records of containers by id, without those removed meanwhile."""
        known = {c.id: end for c in containers if (end := self._end_of(c)) is not None}
        asked = [c for c in containers if c.id not in known]
        records = in_parallel(self.inspect, [c.id for c in asked])
        for container, record in zip(asked, records, strict=True):
            if record is None:
                continue
            known[container.id] = parse_details(record)
            if container.ended:
                if len(self._ends) >= _MOST_ENDS:
                    self._ends.clear()
                self._ends[container.id, container.exit_code] = known[container.id]
        return known

    def _end_of(self, container: Container) -> Details | None:
        """Returns the cached record of an ended container."""
        return self._ends.get((container.id, container.exit_code)) if container.ended else None

    def _abandoned(self, containers: Sequence[Container]) -> bool:
        """Returns True if nobody will start the containers that were only created."""
        created = [c for c in containers if c.status == "created"]
        if not created:
            return False
        newest_s = max(c.created_s for c in created)
        now_s = time.time() + self.clock_skew_ns() / 1e9
        return not any(
            _launcher.may_start(launcher, newest_s, now_s)
            for launcher in {c.launcher for c in created}
        )

    # -- looking ----------------------------------------------------------------------------

    def containers(self, app_id: str | None = None) -> list[Container]:
        """Returns containers of one app or of all, newest first; one call."""
        label = LABEL_APP_ID if app_id is None else f"{LABEL_APP_ID}={app_id}"
        rows = with_retries(
            "list containers",
            lambda: self.api.containers(all=True, filters={"label": [label]}),
        )
        return [c for row in rows if (c := parse_container(row)) is not None]

    def inspect(self, container_id: str) -> "dict[str, Any] | None":
        """Returns Docker's record of one container; ``None`` if it is gone."""
        try:
            record: dict[str, Any] = with_retries(
                f"inspect container `{container_id[:12]}`",
                lambda: self.api.inspect_container(container_id),
            )
        except DockerRefused as err:
            if err.status == 404:
                return None
            raise
        return record

    def image_name(self, image: str) -> str | None:
        """Returns the first tag of a local image, else its id; ``None`` if it is not here."""
        if image not in self._images:
            record = image_record(self.client, image)
            if record is None:
                return None
            tags = record.get("RepoTags") or [record.get("Id") or image]
            self._images[image] = str(tags[0])
        return self._images[image]

    def clock_skew_ns(self) -> int:
        """Returns how far the daemon's clock is ahead of ours; 0 on the same machine."""
        if self._skew_ns is None:
            self._skew_ns = 0
            if not self.api.base_url.startswith("http+docker:"):  # not a local socket
                text = str(with_retries("report the time", self.api.info).get("SystemTime", ""))
                there_ns = parse_ns(text)
                self._skew_ns = 0 if there_ns is None else there_ns - time.time_ns()
        return self._skew_ns

    # -- starting and ending ----------------------------------------------------------------

    def create(self, container: DockerContainer) -> str:
        """Creates one container and returns its id; it does not run yet."""
        with translate_errors(f"create container `{container.kwargs.get('name')}`"):
            created = self.client.containers.create(
                container.image, list(container.command), detach=True, **container.kwargs
            )
        return str(created.id)

    def start(self, container_id: str, name: str) -> None:
        """Starts a container; one that runs is left as it is."""
        with translate_errors(f"start container `{name}`"):
            self.api.start(container_id)

    def stop(self, container_id: str, wait_s: float) -> bool:
        """Lets the daemon stop a container: its stop signal first, SIGKILL after its grace period.

        Args:
            wait_s: seconds after which this returns; the daemon continues.

        Returns:
            True if the container was running.
        """
        import requests

        url = f"{self.api.base_url}/v{self.api.api_version}/containers/{container_id}/stop"
        doing = f"stop container `{container_id[:12]}`"
        try:
            response = self.api.post(url, timeout=(_CONNECT_S, wait_s))
        except requests.exceptions.Timeout:
            return True
        except requests.exceptions.ConnectionError as err:
            if "timed out" in str(err).lower():
                return True
            raise unavailable(err, doing) from None
        if response.status_code >= 400 and response.status_code != 404:
            msg = f"Docker cannot {doing}: {response.text.strip()}"
            raise DockerRefused(msg, response.status_code)
        return bool(response.status_code == 204)

    def remove(self, container_id: str) -> None:
        """Removes a container with its own volumes, also a running one. Ignores missing ones."""
        try:
            with translate_errors(f"remove container `{container_id[:12]}`"):
                self.api.remove_container(container_id, v=True, force=True)
        except DockerRefused as err:
            if err.status not in (404, 409):  # gone, or being removed
                raise

    def remove_all(self, app_id: str) -> None:
        """Removes all containers of an app; a failure does not keep others from being removed."""

        def removed(container: Container) -> TorchXError | None:
            try:
                self.remove(container.id)
            except TorchXError as err:
                return err
            return None

        for failure in in_parallel(removed, self.containers(app_id)):
            if failure is not None:
                raise failure
