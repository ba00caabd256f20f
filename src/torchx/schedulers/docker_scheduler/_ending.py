"""Ends and removes apps, and marks them, because Docker has no state for that.

Labels of containers cannot be changed. An empty volume with labels is visible to every process that
uses this daemon, and one call lists those of all apps.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from torchx._docker import WORKERS, in_parallel, translate_errors, with_retries
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, DockerRefused, TorchXError
from torchx.schedulers.api import AppSnapshot, AppState
from torchx.specs.api import is_terminal
from torchx.version import __version__

from ._network import remove_network
from ._request import LABEL_VERSION
from ._states import SHORT_ID_CHARS, Ended

if TYPE_CHECKING:
    from ._client import Daemon

LABEL_ENDED = "torchx.pytorch.org/ended-app"
"""Label of the volume: the app's id."""
LABEL_CAUSE = "torchx.pytorch.org/ended-because"
"""Label of the volume: a `Cause`."""
LABEL_CONTAINERS = "torchx.pytorch.org/ended-containers"
"""Label of the volume: short ids of the containers that had not ended by themselves."""
LABEL_TOKEN = "torchx.pytorch.org/ended-token"
"""Label of the volume: unique, because creating a volume again returns the old one."""

Cause = Literal["cancelled", "failed"]

_ANSWER_S = 1.0
"""Seconds for which a stop waits for the end of the containers."""
_GRACE_S = 15.0
"""Seconds that ending by a signal may take: Docker's grace period is 10 s."""

logger = get_logger(__name__)


def end(daemon: "Daemon", snapshot: AppSnapshot, cause: Cause) -> None:
    """Stops the live containers of an app: SIGTERM, then SIGKILL after the grace period."""
    live = [r for r in snapshot.replicas if not is_terminal(r.state)]
    created = {r.native_id for r in live if r.state is AppState.SUBMITTED}
    ids = [r.native_id for r in live]
    is_new = _mark(daemon, snapshot.app_id, cause, ids)
    stops = stop_all(daemon, ids)
    failures = [stop for stop in stops if isinstance(stop, TorchXError)]
    # containers that ended by themselves keep their state, those that cannot be ended have none
    kept = [
        container_id
        for container_id, stop in zip(ids, stops, strict=True)
        if stop is True or (stop is False and container_id in created)
    ]
    if is_new and len(kept) < len(ids):
        try:
            _unmark(daemon, snapshot.app_id, cause)
            if kept:
                _mark(daemon, snapshot.app_id, cause, kept)
        except TorchXError as err:
            failures.append(err)
    if failures:
        raise failures[0]


def remove(daemon: "Daemon", snapshot: AppSnapshot) -> None:
    """Stops and removes all containers of an app, and the network with the last app."""
    live = [r.native_id for r in snapshot.replicas if not is_terminal(r.state)]
    for stop in stop_all(daemon, live):
        if isinstance(stop, TorchXError):
            raise stop
    in_parallel(lambda container_id: _wait_for_end(daemon, container_id), live)
    daemon.remove_all(snapshot.app_id)
    for cause in _CAUSES:
        _unmark(daemon, snapshot.app_id, cause)
    remove_network(daemon)


def stop_all(daemon: "Daemon", ids: Sequence[str]) -> list[bool | TorchXError]:
    """Requests the end of containers, and does not wait long for it.

    Returns:
        For each container, True if it was running, or the error.
    """
    rounds = -(-len(ids) // WORKERS)
    wait_s = max(_ANSWER_S / max(rounds, 1), 0.1)

    def stop(container_id: str) -> bool | TorchXError:
        try:
            return daemon.stop(container_id, wait_s)
        except TorchXError as err:
            return err

    return in_parallel(stop, ids)


def _wait_for_end(daemon: "Daemon", container_id: str) -> None:
    """Waits until the container has ended, or should have."""
    try:
        with translate_errors(f"wait for container `{container_id[:SHORT_ID_CHARS]}`"):
            daemon.api.wait(container_id, timeout=_GRACE_S)
    except (BackendUnavailable, DockerRefused) as err:
        logger.debug("%s", err)  # it is gone, or will be killed next


# -- marks ---------------------------------------------------------------------------------------

_CAUSES: tuple[Cause, ...] = ("cancelled", "failed")


def marks(daemon: "Daemon", app_id: str | None = None) -> dict[str, Ended]:
    """Returns the recorded ends by app, of one app or of all; one call."""
    label = LABEL_ENDED if app_id is None else f"{LABEL_ENDED}={app_id}"
    answer: dict[str, Any] = with_retries(
        "list volumes", lambda: daemon.api.volumes(filters={"label": [label]})
    )
    found: dict[str, Ended] = {}
    for volume in answer.get("Volumes") or ():
        labels = volume.get("Labels") or {}
        ended = found.get(labels.get(LABEL_ENDED, ""), Ended())
        found[labels.get(LABEL_ENDED, "")] = replace(
            ended,
            cancelled=ended.cancelled or labels.get(LABEL_CAUSE) == "cancelled",
            failed=ended.failed or labels.get(LABEL_CAUSE) == "failed",
            ids=ended.ids | {*labels.get(LABEL_CONTAINERS, "").split(",")},
        )
    return found


def _mark(daemon: "Daemon", app_id: str, cause: Cause, ids: Collection[str]) -> bool:
    """Records the request to end containers; ``False`` if it was recorded before."""
    import uuid

    token = uuid.uuid4().hex
    labels = {
        LABEL_VERSION: __version__,
        LABEL_ENDED: app_id,
        LABEL_CAUSE: cause,
        LABEL_CONTAINERS: ",".join(i[:SHORT_ID_CHARS] for i in ids),
        LABEL_TOKEN: token,
    }
    with translate_errors("record that the app is ended"):
        made = daemon.api.create_volume(_mark_name(app_id, cause), labels=labels)
    return bool((made.get("Labels") or {}).get(LABEL_TOKEN) == token)


def _unmark(daemon: "Daemon", app_id: str, cause: Cause) -> None:
    """Undoes ``_mark``."""
    try:
        with translate_errors("remove the record that the app is ended"):
            daemon.api.remove_volume(_mark_name(app_id, cause))
    except DockerRefused as err:
        if err.status != 404:
            raise


def _mark_name(app_id: str, cause: Cause) -> str:
    """Returns the name of the volume: the end of an id is its unique part."""
    tail = app_id[-100:]
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in tail)
    return f"torchx-{cause}-{plain}"
