"""All calls to the Docker daemon, and the only import of its SDK."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torchx._files import try_lock
from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    DockerNotInstalled,
    DockerRefused,
    TransferFailed,
)
from torchx.version import __version__

from ._request import LABEL_APP_ID, LABEL_VERSION, NETWORK, DockerContainer
from ._states import Container, Details, parse_container, parse_details

LABEL_CANCELLED = "torchx.pytorch.org/cancelled"
"""On the volume that marks an app as cancelled: the app's id."""
LABEL_CANCELLED_CONTAINERS = "torchx.pytorch.org/cancelled-containers"
"""There: short ids of the containers that had not ended."""

WORKERS = 10
"""Calls at a time: more make neither dockerd faster nor fit the SDK's pool of connections."""
_POOL_CONNECTIONS = 64
_RETRY_PAUSES_S = (0.2, 0.8)
_NETWORK_LOCK = "torchx_docker_network_lock"
_NETWORK_LOCK_S = 10
_CANCEL_S = 1.0
"""How long a cancel waits to hear that containers have ended."""
_GRACE_S = 15.0
"""How long ending by a signal may take: Docker's grace is 10 s."""
_CONNECT_S = 10.0
EVENT_LAG_NS = 2_000_000_000
"""How late the daemon may tell of an event, or show its effect in a list."""
_EVENTS = ["start", "die", "destroy", "pause", "unpause"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item

logger = get_logger(__name__)


def has_docker() -> bool:
    """Whether the Python package is installed and a daemon answers."""
    try:
        connect().close()
    except (DockerNotInstalled, BackendUnavailable):
        return False
    return True


def connect() -> Any:
    """A client of the SDK for the daemon that ``DOCKER_HOST`` names.

    Raises:
        DockerNotInstalled: (a ``ModuleNotFoundError``) without the SDK.
        BackendUnavailable: if no daemon answers there.
    """
    try:
        import docker
        import requests
    except ModuleNotFoundError as err:
        if err.name != "docker":
            raise
        msg = "`local_docker` needs the Python package of Docker"
        raise DockerNotInstalled(msg, name="docker", extra="docker") from None
    from torchx.workspace._docker import probe_socket

    try:
        probe_socket()
        return docker.from_env(max_pool_size=_POOL_CONNECTIONS)
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as err:
        raise _unavailable(err) from None
    except ValueError as err:  # a port that is no number, say
        raise _unavailable(err) from None


def _unavailable(err: BaseException) -> BackendUnavailable:
    from torchx.workspace._docker import docker_host

    reason = _os_error(err) or str(err).partition("\n")[0]
    if "ermission denied" in reason:
        advice = "let your user talk to it, for instance as a member of the group `docker`"
    else:
        advice = "start Docker, or set DOCKER_HOST to where it runs"
    return BackendUnavailable(
        f"the Docker daemon at {docker_host()} cannot be reached: {reason}; {advice}"
    )


def _os_error(err: object, depth: int = 0) -> str:
    """What the system said, below the layers of exceptions around it."""
    if not isinstance(err, BaseException) or depth > 8:
        return ""
    if isinstance(err, OSError) and err.errno and err.strerror:
        return err.strerror
    for inner in (*err.args, err.__cause__, err.__context__):
        if inner is not err and (found := _os_error(inner, depth + 1)):
            return found
    return ""


@contextmanager
def errors_of(doing: str) -> Iterator[None]:
    """Turns exceptions of the SDK into ours.

    Args:
        doing: what Docker is asked for, for the message: "start container `x`".
    """
    import docker
    import requests

    try:
        yield
    except docker.errors.APIError as err:
        text = str(err.explanation or err).strip()
        raise DockerRefused(f"Docker cannot {doing}: {text}", err.status_code or 0) from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as err:
        raise _unavailable(err) from None


def repeated(doing: str, call: Callable[[], T]) -> T:
    """The result of a call that may be made again, which it is after a broken connection."""
    for pause in (*_RETRY_PAUSES_S, None):
        try:
            with errors_of(doing):
                return call()
        except BackendUnavailable:
            if pause is None:
                raise
            time.sleep(pause)
        except DockerRefused as err:
            if pause is None or err.status not in (502, 503, 504):
                raise
            time.sleep(pause)
    raise AssertionError("unreachable")


def in_parallel(call: Callable[[I], T], items: Sequence[I]) -> list[T]:
    """Results of the calls, in order. After a failure no other is begun; the first is raised.

    The calls are made in other threads also if there is one only: Ctrl-C does not interrupt it, so
    that its outcome is known when this function ends.
    """
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), WORKERS)) as pool:
        futures = [pool.submit(call, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
    failed = [e for f in futures if not f.cancelled() and (e := f.exception()) is not None]
    if failed:
        raise failed[0]
    return [future.result() for future in futures]


Event = tuple[int, str, str]
"""Time in nanoseconds by the daemon's clock, container, what happened to it."""


class EventCursor:
    """How far the events of an app are known.

    Args:
        since_ns: time to begin at, by our clock.
    """

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.handled: set[Event] = set()

    def move(self, events: Sequence[Event], skew_ns: int) -> None:
        """Puts events behind the cursor. Others of nearly the same time may still come."""
        if events:
            self.handled.update(events)
            latest_ns = max(event[0] for event in events)
            self.since_ns = max(self.since_ns, latest_ns - skew_ns - EVENT_LAG_NS)
            oldest_ns = self.since_ns + skew_ns
            self.handled = {event for event in self.handled if event[0] >= oldest_ns}


class Daemon:
    """The calls that the scheduler makes, in its own words.

    Args:
        client: of Docker's SDK.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.api = client.api
        self._skew_ns: int | None = None

    # -- looking ----------------------------------------------------------------------------

    def containers(self, app_id: str | None = None) -> list[Container]:
        """Containers of one app or of all, the one that was created last first; one call."""
        label = LABEL_APP_ID if app_id is None else f"{LABEL_APP_ID}={app_id}"
        rows = repeated(
            "list containers",
            lambda: self.api.containers(all=True, filters={"label": [label]}),
        )
        found = [c for row in rows if (c := parse_container(row)) is not None]
        return [self._with_exit_code(c) for c in found]

    def _with_exit_code(self, container: Container) -> Container:
        """Asks for the exit code where the list did not tell it."""
        if container.status != "exited" or container.exit_code is not None:
            return container
        details = self.details(container.id)
        from dataclasses import replace

        return replace(container, exit_code=details.exit_code if details else None)

    def details(self, container_id: str) -> Details | None:
        """The record of one container; ``None`` if it is gone."""
        record = self.inspect(container_id)
        return None if record is None else parse_details(record)

    def inspect(self, container_id: str) -> "dict[str, Any] | None":
        """Docker's own record of one container; ``None`` if it is gone."""
        try:
            record: dict[str, Any] = repeated(
                f"inspect container `{container_id}`",
                lambda: self.api.inspect_container(container_id),
            )
        except DockerRefused as err:
            if err.status == 404:
                return None
            raise
        return record

    def image_name(self, image: str) -> str | None:
        """First tag of an image that is here, or else its id; ``None`` if it is not here."""
        try:
            record = repeated(f"inspect image `{image}`", lambda: self.api.inspect_image(image))
        except DockerRefused as err:
            if err.status in (400, 404) or "invalid reference" in str(err):
                return None
            raise
        tags = record.get("RepoTags") or [record.get("Id") or image]
        return str(tags[0])

    def clock_skew_ns(self) -> int:
        """How far the daemon's clock is ahead of ours; 0 on the same machine."""
        if self._skew_ns is None:
            self._skew_ns = 0
            if not self.api.base_url.startswith("http+docker:"):  # no socket of this machine
                self._skew_ns = self._measured_skew_ns()
        return self._skew_ns

    def _measured_skew_ns(self) -> int:
        from datetime import datetime, timezone

        text = str(repeated("tell the time", self.api.info).get("SystemTime", ""))
        try:
            there = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
        except ValueError:
            return 0
        seconds = there.replace(tzinfo=timezone.utc).timestamp()
        return int(seconds * 1e9) - time.time_ns()

    def wait_for_event(
        self, filters: Mapping[str, str], cursor: "EventCursor", timeout_s: float
    ) -> None:
        """Returns when something happened to containers behind the cursor, and moves that.

        Args:
            filters: which containers, in Docker's words.
            timeout_s: at the latest after this time.
        """
        skew_ns = self.clock_skew_ns()
        since_ns = cursor.since_ns + skew_ns
        now_ns = time.time_ns() + skew_ns
        until_ns = now_ns + int(timeout_s * 1e9)
        with errors_of("tell events"):
            found = self._events(filters, since_ns, now_ns, cursor, first=False)
            if not found and until_ns > now_ns:
                found = self._events(filters, since_ns, until_ns, cursor, first=True)
        # the daemon tells of an end before its list does, and holds the container until then
        in_parallel(self.inspect, [*dict.fromkeys(container_id for _, container_id, _ in found)])
        cursor.move(found, skew_ns)

    def _events(
        self,
        filters: Mapping[str, str],
        since_ns: int,
        until_ns: int,
        cursor: "EventCursor",
        first: bool,
    ) -> "list[Event]":
        """Events in a range of the daemon's time, which may reach into the future.

        Args:
            first: only the first one, as soon as it is there.
        """
        events = self.api.events(
            since=as_seconds(since_ns),
            until=as_seconds(max(until_ns, since_ns)),
            filters={"type": "container", "event": _EVENTS, **filters},
            decode=True,
        )
        found = []
        try:
            for told in events:
                actor = told.get("Actor") or {}
                container_id = str(actor.get("ID") or told.get("id"))
                event = (int(told.get("timeNano", 0)), container_id, str(told.get("Action")))
                if event in cursor.handled:
                    continue
                found.append(event)
                if first:
                    break
        finally:
            events.close()
        return found

    # -- images and network -----------------------------------------------------------------

    def pull(self, image: str, quiet: bool = False) -> None:
        """Pulls an image, whatever is there of it already. On a terminal its progress is shown.

        Args:
            quiet: do not show it.
        """
        import sys

        from docker.utils import parse_repository_tag

        from torchx.workspace import _transfers

        repository, tag = parse_repository_tag(image)
        shown = None if sys.stderr.isatty() and not quiet else _transfers.silent()
        with errors_of(f"pull image `{image}`"):
            events = self.api.pull(repository, tag=tag or "latest", stream=True, decode=True)
            try:
                _transfers.show(events, shown, "pull")
            except TransferFailed as err:
                raise DockerRefused(f"Docker cannot pull image `{image}`: {err}", 0) from None

    def remove_network(self) -> None:
        """Removes our network if nothing of ours is left that could use it."""
        try:
            with _network_lock():
                if self.containers():
                    return
                found = self.api.networks(names=[NETWORK])
                ours = [n for n in found if n["Name"] == NETWORK and LABEL_VERSION in n["Labels"]]
                for network in ours:
                    with errors_of(f"remove network `{NETWORK}`"):
                        self.api.remove_network(network["Id"])
        except DockerRefused as err:  # someone else's container is on it
            logger.debug("network `%s` is kept: %s", NETWORK, err)

    # -- starting and ending ----------------------------------------------------------------

    def create(self, container: DockerContainer) -> str:
        """Creates one container and returns its id; it does not run yet."""
        with errors_of(f"create container `{container.kwargs.get('name')}`"):
            created = self.client.containers.create(
                container.image, list(container.command), detach=True, **container.kwargs
            )
        return str(created.id)

    def start(self, container_id: str, name: str) -> None:
        """Starts a container; one that runs is left as it is."""
        with errors_of(f"start container `{name}`"):
            self.api.start(container_id)

    def stop(self, container_id: str, wait_s: float) -> bool:
        """Has the daemon end a container: its stop signal first, SIGKILL after its grace period.

        Args:
            wait_s: the daemon goes on without us after this time.

        Returns:
            Whether there was something to end.
        """
        import requests

        url = f"{self.api.base_url}/v{self.api.api_version}/containers/{container_id}/stop"
        try:
            response = self.api.post(url, timeout=(_CONNECT_S, wait_s))
        except requests.exceptions.Timeout:
            return True
        except requests.exceptions.ConnectionError as err:
            if "timed out" in str(err).lower():
                return True
            raise _unavailable(err) from None
        if response.status_code >= 400 and response.status_code != 404:
            text = response.text.strip()
            msg = f"Docker cannot stop container `{container_id[:12]}`: {text}"
            raise DockerRefused(msg, response.status_code)
        return bool(response.status_code == 204)

    def stop_all(self, containers: Sequence[Container]) -> bool:
        """Asks the daemon to end the containers, and does not wait long for that.

        Returns:
            Whether there was anything to end.
        """
        rounds = -(-len(containers) // WORKERS)
        wait_s = max(_CANCEL_S / max(rounds, 1), 0.1)
        results = in_parallel(
            lambda c: self.stop(c.id, wait_s) or c.status == "created", containers
        )
        return any(results)

    def wait_for_end(self, container_id: str) -> None:
        """Returns when the container has ended, or should have."""
        try:
            with errors_of(f"wait for container `{container_id[:12]}`"):
                self.api.wait(container_id, timeout=_GRACE_S)
        except (BackendUnavailable, DockerRefused) as err:
            logger.debug("%s", err)  # it is gone, or is ended by force next

    def remove(self, container_id: str) -> None:
        """Removes a container with its own volumes, also one that runs. Gone ones are fine."""
        try:
            with errors_of(f"remove container `{container_id[:12]}`"):
                self.api.remove_container(container_id, v=True, force=True)
        except DockerRefused as err:
            if err.status not in (404, 409):  # gone, or being removed
                raise

    def remove_all(self, app_id: str) -> None:
        """Removes all containers of an app."""
        in_parallel(lambda c: self.remove(c.id), self.containers(app_id))

    # -- what Docker has no state for -------------------------------------------------------

    def mark_cancelled(self, app_id: str, containers: Sequence[Container]) -> None:
        """Records that the app is cancelled, as an empty volume with labels.

        Labels of containers cannot be changed. A volume is seen by every process that uses this
        daemon, and by one call for all apps.
        """
        labels = {
            LABEL_VERSION: __version__,
            LABEL_CANCELLED: app_id,
            LABEL_CANCELLED_CONTAINERS: ",".join(c.id[:12] for c in containers),
        }
        with errors_of("record that the app is cancelled"):
            self.api.create_volume(_mark_name(app_id), labels=labels)

    def unmark_cancelled(self, app_id: str) -> None:
        """Takes back ``mark_cancelled``."""
        try:
            with errors_of("remove the record of a cancel"):
                self.api.remove_volume(_mark_name(app_id))
        except DockerRefused as err:
            if err.status != 404:
                raise

    def cancelled(self, app_id: str | None = None) -> "dict[str, frozenset[str]]":
        """Short ids of the containers that were cancelled, by app; of one app or of all."""
        label = LABEL_CANCELLED if app_id is None else f"{LABEL_CANCELLED}={app_id}"
        answer: Mapping[str, Any] = repeated(
            "list volumes", lambda: self.api.volumes(filters={"label": [label]})
        )
        found = {}
        for volume in answer.get("Volumes") or ():
            labels = volume.get("Labels") or {}
            ids = labels.get(LABEL_CANCELLED_CONTAINERS, "").split(",")
            found[labels.get(LABEL_CANCELLED, "")] = frozenset(ids)
        return found


def _mark_name(app_id: str) -> str:
    """Name of the volume: the end of an id is what is unique of it."""
    tail = app_id[-100:]
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in tail)
    return f"torchx-cancelled-{plain}"


def as_seconds(ns: int) -> str:
    """A time as Docker's API takes it: seconds with nine digits behind the point.

    >>> as_seconds(1_500_000_000)
    '1.500000000'
    """
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{seconds}.{rest:09d}"


def ensure_network(client: Any = None) -> None:
    """Makes the bridge network on which replicas find each other, unless it is there.

    Args:
        client: of Docker's SDK; ``None`` for one from the environment.
    """
    if client is None:
        client = connect()
    with errors_of(f"create network `{NETWORK}`"):
        if _has_network(client):
            return
        with _network_lock():
            try:
                client.networks.create(
                    name=NETWORK,
                    driver="bridge",
                    check_duplicate=True,
                    labels={LABEL_VERSION: __version__},
                )
            except Exception as err:
                # only an answer of the daemon has a text like this
                if "already exists" not in str(err):
                    raise


def _has_network(client: Any) -> bool:
    return any(network.name == NETWORK for network in client.networks.list(names=[NETWORK]))


@contextmanager
def _network_lock() -> Iterator[None]:
    """One process at a time: the daemon may make two networks of one name at once."""
    import tempfile

    path = os.path.join(tempfile.gettempdir(), _NETWORK_LOCK)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # another user's file can be locked too
    except FileNotFoundError:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + _NETWORK_LOCK_S
        while not try_lock(fd):
            if time.monotonic() >= deadline:
                msg = f"`{path}` is locked for {_NETWORK_LOCK_S} s: who holds it? (`fuser`)"
                raise BackendUnavailable(msg)
            time.sleep(0.05)
        yield
    finally:
        os.close(fd)
