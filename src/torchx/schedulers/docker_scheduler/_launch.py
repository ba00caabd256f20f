"""Starts all containers of an app, or none."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchx._docker import in_parallel, missing_image, pull
from torchx._retry import with_retries
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, DockerRefused, JobStartError, TorchXError

from ._client import Daemon
from ._ending import marks, stop_all
from ._launcher import identity
from ._network import ensure_network
from ._request import LABEL_LAUNCHER, LABEL_REPLICA_ID, NETWORK, DockerContainer, DockerJob

if TYPE_CHECKING:
    from types import FrameType

_LATE_S = 2.0
"""Seconds after which a create whose response was lost has taken effect."""
_ROLLBACK_PAUSES_S = (1.0, 2.0, 4.0)

logger = get_logger(__name__)


def launch(daemon: Daemon, job: DockerJob) -> None:
    """Creates every container, then starts them all; on any failure removes them.

    Raises:
        JobStartError: if an image is missing, or Docker refuses a container.
        BackendUnavailable: if the daemon cannot be reached.
    """
    if not job.containers:
        msg = f"app `{job.app_id}` has no containers to start"
        raise JobStartError(msg)
    with _ending_signals_wait() as signals:
        pull_images(daemon, [container.image for container in job.containers], job.quiet)
        ensure_network(daemon.client)
        try:
            ids = _create(daemon, job.containers)
            _start(daemon, ids, job.containers)
            if marks(daemon, job.app_id):  # cancelled by another process meanwhile
                stop_all(daemon, ids)
        except BaseException as err:
            signals.ignore()
            _rollback(daemon, job.app_id, isinstance(err, BackendUnavailable))
            if isinstance(err, DockerRefused):
                raise JobStartError(f"{err}{_advice(str(err))}") from None
            raise


def pull_images(daemon: Daemon, images: Sequence[str], quiet: bool = False) -> None:
    """Pulls each image once; images that cannot be pulled must exist locally.

    Args:
        quiet: do not show the progress.

    Raises:
        JobStartError: for a missing image that cannot be pulled.
    """
    for image in dict.fromkeys(images):
        if not image:
            msg = "the role's image is empty: local_docker needs the name of an image"
            raise JobStartError(msg)
        if image.startswith("sha256:"):
            if daemon.image_name(image) is None:
                msg = f"there is no image `{image}` on this machine; build or pull it again"
                raise JobStartError(msg)
            continue
        if "@sha256:" in image and daemon.image_name(image) is not None:
            continue  # an image with a digest does not change
        logger.info("pulling image `%s`", image)
        try:
            pull(daemon.client, image, sys.stderr if sys.stderr.isatty() and not quiet else None)
        except DockerRefused as err:
            if daemon.image_name(image) is None:
                raise JobStartError(missing_image(image, err)) from None
            logger.warning("using the local image `%s`: %s", image, err)


def _create(daemon: Daemon, containers: Sequence[DockerContainer]) -> list[str]:
    """Creates the containers and returns their ids, in order.

    The first replica of each role is created alone: the order of the roles is read back from their
    order.
    """
    launcher = identity()

    def create(container: DockerContainer) -> str:
        labels = container.kwargs.get("labels")
        if isinstance(labels, dict):
            labels = {**labels, LABEL_LAUNCHER: launcher}
        kwargs = {**container.kwargs, "labels": labels}
        return daemon.create(DockerContainer(container.image, container.command, kwargs))

    ids = [""] * len(containers)
    rest = []
    for i, container in enumerate(containers):
        labels = container.kwargs.get("labels")
        if isinstance(labels, dict) and labels.get(LABEL_REPLICA_ID) == "0":
            (ids[i],) = in_parallel(create, [container])
        else:
            rest.append(i)
    created = in_parallel(lambda i: create(containers[i]), rest)
    for i, container_id in zip(rest, created, strict=True):
        ids[i] = container_id
    return ids


def _start(daemon: Daemon, ids: Sequence[str], containers: Sequence[DockerContainer]) -> None:
    def start(i: int) -> None:
        name = str(containers[i].kwargs.get("name"))
        try:
            daemon.start(ids[i], name)
        except DockerRefused as err:
            if f"network {NETWORK} not found" not in str(err):
                raise
            ensure_network(daemon.client)  # removed with the last app by another process
            daemon.start(ids[i], name)

    in_parallel(start, range(len(ids)))


def _rollback(daemon: Daemon, app_id: str, outcome_unknown: bool) -> None:
    """Removes all created containers of an app."""
    try:
        with_retries(lambda: daemon.remove_all(app_id), _ROLLBACK_PAUSES_S, _is_ours)
        if outcome_unknown:
            time.sleep(_LATE_S)
            daemon.remove_all(app_id)
    except TorchXError as err:
        logger.error(
            "containers of app `%s` may be left, remove them with "
            "`torchx delete local_docker:///%s`: %s",
            app_id,
            app_id,
            err,
        )


def _is_ours(err: Exception) -> bool:
    """Returns True for a refusal that may be temporary, such as a file system in use."""
    return isinstance(err, TorchXError)


def _advice(text: str) -> str:
    if "could not select device driver" in text:
        return "; GPUs need the NVIDIA Container Toolkit on this machine"
    if "is already in use by container" in text:
        return "; remove that container, or give the job another name"
    return ""


class _Signals:
    def __init__(self) -> None:
        self.ignored = False

    def ignore(self) -> None:
        """Ignores SIGINT and SIGTERM from now on."""
        self.ignored = True


@contextmanager
def _ending_signals_wait() -> Iterator[_Signals]:
    """Makes SIGTERM an exception, too, and protects the cleanup from signals."""
    import signal

    signals = _Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: "FrameType | None") -> None:
        handler = before[signal.Signals(number)]
        if signals.ignored or handler is signal.SIG_IGN:
            return
        signals.ignore()
        if callable(handler):
            handler(number, frame)
            signals.ignored = False  # it did not raise, but only recorded the signal
        else:
            raise SystemExit(128 + number)

    for number in before:
        signal.signal(number, handle)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
