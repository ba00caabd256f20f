"""Calls to the Docker daemon that the scheduler and the workspaces make, and how they are made."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from torchx import _retry
from torchx._docker import _transfers
from torchx._docker._errors import translate_errors
from torchx._passing import bytes_text
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, DockerRefused, TransferFailed

WORKERS = 10
"""Concurrent calls: more do not make dockerd faster and exceed the SDK's connection pool."""
_RETRY_PAUSES_S = (0.2, 0.8)

logger = get_logger(__name__)

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item


def with_retries(doing: str, call: Callable[[], T]) -> T:
    """Returns the result of an idempotent call, retrying it after a broken connection.

    Args:
        doing: the request, for messages.
    """

    def translated() -> T:
        with translate_errors(doing):
            return call()

    return _retry.with_retries(translated, _RETRY_PAUSES_S, _is_transient)


def _is_transient(err: Exception) -> bool:
    if isinstance(err, DockerRefused):
        return err.status in (502, 503, 504)
    return isinstance(err, BackendUnavailable)


def in_parallel(call: Callable[[I], T], items: Sequence[I]) -> list[T]:
    """Makes the calls concurrently and returns their results in order. After a failure no further
    call is started, and the first error is raised.

    Even a single call is made in another thread: Ctrl-C does not interrupt it there, so its outcome
    is known when this function returns.
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


def image_record(client: Any, image: str) -> dict[str, Any] | None:
    """Returns Docker's record of an image; ``None`` if the image is not on this machine."""
    try:
        record: dict[str, Any] = with_retries(
            f"inspect image `{image}`", lambda: client.api.inspect_image(image)
        )
    except DockerRefused as err:
        if err.status in (400, 404) or "invalid reference" in str(err):
            return None
        raise
    return record


def pull(
    client: Any, image: str, progress: TextIO | None, login: Mapping[str, Any] | None = None
) -> None:
    """Pulls an image, even if it is present already.

    Args:
        progress: stream for its progress; ``None`` shows none.
        login: credentials as ``auth_config`` of Docker's SDK; ``None`` lets the SDK find them.

    Raises:
        DockerRefused: if it cannot be pulled.
    """
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)
    with translate_errors(f"pull image `{image}`"):
        events = client.api.pull(
            repository, tag=tag or "latest", stream=True, decode=True, **(login or {})
        )
        try:
            moved = _transfers.show(events, progress or _transfers.silent(), "pull", image)
        except TransferFailed as err:
            raise DockerRefused(f"Docker cannot pull image `{image}`: {err}") from None
    if moved and progress is not None:
        text = f"pulled image `{image}`, {bytes_text(moved)}"
        logger.info("%s", text, extra={"calm_text": text})
