"""All calls of the workspace builder to a Docker daemon; the only import of its SDK."""

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    NotInstalled,
    TorchXError,
    TransferFailed,
    UnexpectedReply,
)
from torchx.workspace import _transfers
from torchx.workspace._tar import TarStream

logger = get_logger("torchx.workspace.docker_workspace")

_PUSH_PAUSES_S = (1, 2, 4)
_UNUSED_ARGUMENT = "[Warning] One or more build-args"  # few Dockerfiles use all we offer
_PERMANENT = re.compile(
    "denied|unauthorized|authoriz|authentication|forbidden|no basic auth|not found|name unknown"
    "|does not exist|invalid|malformed|unsupported",
    re.IGNORECASE,
)


def connect() -> Any:
    """A client of the daemon that the environment names.

    Raises:
        NotInstalled: (a ``ModuleNotFoundError``) if the Docker SDK is not installed.
        BackendUnavailable: if no daemon answers.
    """
    try:
        import docker
    except ModuleNotFoundError as err:
        if err.name != "docker":
            raise
        msg = "building images needs the Docker SDK"
        raise NotInstalled(msg, name="docker", extra="docker") from None
    with translate_errors("connect"):
        try:
            probe_socket()
        except OSError as err:
            raise _unreachable("connect", err) from err
        try:
            return docker.from_env()
        except ValueError as err:  # a port that is no number, say
            raise _unreachable("connect", err) from err


def docker_host() -> str:
    """Where the daemon is, as the SDK understands it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def probe_socket() -> None:
    """Raises ``OSError`` if nobody listens on the daemon's socket; the SDK leaks a file then."""
    import socket

    host = docker_host()
    if not host.startswith("unix://") or not hasattr(socket, "AF_UNIX"):
        return
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.connect("/" + host[len("unix://") :].lstrip("/"))


@contextlib.contextmanager
def translate_errors(action: str, context: TarStream | None = None) -> Iterator[None]:
    """Turns errors of the SDK into ours.

    Args:
        action: what was being done, for messages.
        context: what was being sent; its own failure is the cause of any other.
    """
    import docker.errors
    import requests.exceptions

    try:
        yield
    except TorchXError:
        raise
    except Exception as err:
        if context is not None and context.failure is not None:
            raise context.failure from None
        if isinstance(err, docker.errors.APIError):
            why = str(err.explanation or err)
            if err.is_client_error():
                raise InvalidInput(f"the Docker daemon refuses to {action}: {why}") from err
            raise BackendUnavailable(f"the Docker daemon failed to {action}: {why}") from err
        if isinstance(err, (docker.errors.DockerException, requests.exceptions.RequestException)):
            raise _unreachable(action, err) from err
        raise


def _unreachable(action: str, err: Exception) -> BackendUnavailable:
    msg = (
        f"cannot {action}: no Docker daemon answers on `{docker_host()}` ({_cause(err)}); start"
        " Docker, set DOCKER_HOST to where it runs, and check that you may use it"
    )
    return BackendUnavailable(msg)


def _cause(err: BaseException) -> str:
    """The innermost reason: the SDK wraps it several times."""
    seen = err
    while (inner := seen.__cause__ or seen.__context__) is not None:
        seen = inner
    return str(getattr(seen, "strerror", None) or seen)


def image_id(client: Any, image: str) -> str | None:
    """The id of an image that the daemon has; ``None`` if it has not."""
    import docker.errors

    with translate_errors(f"look for image `{image}`"):
        try:
            return str(client.api.inspect_image(image)["Id"])
        except docker.errors.ImageNotFound:
            return None


def find_or_pull(client: Any, image: str, *, required: bool, quiet: bool = False) -> str | None:
    """Makes sure that the daemon has an image; it is pulled only if it has not.

    Args:
        quiet: do not show the progress of a pull.
        required: whether it is an error that it cannot be had; a warning otherwise.

    Returns:
        Its id; ``None`` if it cannot be had.
    """
    found = image_id(client, image)
    if found is not None:
        return found
    try:
        _pull(client, image, quiet)
        return image_id(client, image)
    except (InvalidInput, BackendUnavailable, TransferFailed) as err:
        if required:
            msg = f"the image `{image}` is not on this machine and cannot be pulled: {err}"
            raise InvalidInput(msg) from err
        logger.warning("cannot pull image `%s`: %s", image, err)
        return None


def _pull(client: Any, image: str, quiet: bool) -> None:
    from docker.utils import parse_repository_tag

    if image.startswith("sha256:"):
        msg = "it is an image id, and only names can be pulled"
        raise InvalidInput(msg)
    repository, tag = parse_repository_tag(image)
    with translate_errors(f"pull image `{image}`"):
        events = client.api.pull(repository, tag=tag or "latest", stream=True, decode=True)
        _transfers.show(events, _transfers.silent() if quiet else None, "pull")


def build(
    client: Any,
    context: TarStream,
    *,
    dockerfile: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    quiet: bool,
) -> str:
    """Sends a build context and returns the id of the image, ``sha256:…``.

    Raises:
        docker.errors.BuildError: if the build fails; it is an ``InvalidInput`` as well.
    """
    with translate_errors("build the image", context):
        try:
            events = client.api.build(
                fileobj=context,
                custom_context=True,
                dockerfile=dockerfile,
                buildargs=dict(arguments),
                pull=False,
                rm=True,
                forcerm=True,  # the container of a step that fails, too
                decode=True,
                labels=dict(labels),
            )
            image, log = _read_build(events, quiet)
        finally:
            context.close()
    if image is None:
        raise _no_image(log)
    return image


def _read_build(events: Iterable[Mapping[str, Any]], quiet: bool) -> tuple[str | None, list[Any]]:
    image = None
    log = []
    for event in events:
        log.append(event)
        # `message` is what the daemon answers to a request that it refuses as a whole
        reason = event.get("error") or event.get("message")
        if reason:
            raise _build_error()(str(reason).strip(), log)
        text = str(event.get("stream") or "").rstrip()
        if text and not quiet and not text.startswith(_UNUSED_ARGUMENT):
            logger.info("%s", text)
        identity = (event.get("aux") or {}).get("ID")
        if identity:
            image = str(identity)
    return image, log


@functools.cache
def _build_error() -> Any:
    import docker.errors

    class ImageBuildFailed(InvalidInput, docker.errors.BuildError):  # type: ignore[misc]  # untyped
        """The daemon could not build the image."""

        def __init__(self, reason: str, log: list[Any]) -> None:
            docker.errors.BuildError.__init__(self, reason, log)
            self.args = (_build_message(reason, log),)

        def __str__(self) -> str:
            return str(self.args[0])

    return ImageBuildFailed


def _build_message(reason: str, log: list[Any]) -> str:
    """The error, and the step that it happened in, which the daemon tells before."""
    steps = [str(e.get("stream")).strip() for e in log if e.get("stream")]
    step = next((s for s in reversed(steps) if s.startswith("Step ")), "")
    return f"the image could not be built{f' ({step})' if step else ''}: {reason}"


class _NoImage(UnexpectedReply, AssertionError):
    """The build ended without an image and without an error."""


def _no_image(log: list[Any]) -> _NoImage:
    return _NoImage("docker build", str(log[-3:]))


def push(client: Any, image: str, repository: str, tag: str, *, quiet: bool = False) -> str | None:
    """Pushes a local image as ``repository:tag``; returns its digest in the registry.

    A transfer that breaks is tried again: what has arrived is not sent twice, and the tag is set
    when all of it is there.

    Args:
        quiet: do not show the progress.

    Returns:
        ``sha256:…``; ``None`` if the daemon does not say.

    Raises:
        TransferFailed: if the registry refuses, or keeps failing.
        BackendUnavailable: if the daemon does.
    """
    with translate_errors(f"tag image `{image}` as `{repository}:{tag}`"):
        client.images.get(image).tag(repository, tag=tag)
    for pause_s in (*_PUSH_PAUSES_S, None):
        try:
            return _push_once(client, repository, tag, quiet)
        except (TransferFailed, BackendUnavailable) as err:
            if pause_s is None or _PERMANENT.search(str(err)):
                if isinstance(err, BackendUnavailable):
                    raise
                msg = f"cannot push `{repository}:{tag}`: {err}{_advice(str(err))}"
                raise TransferFailed(msg) from err
            logger.warning("cannot push `%s:%s`, trying again: %s", repository, tag, err)
            time.sleep(pause_s)
    raise AssertionError  # the last round returns or raises


def _push_once(client: Any, repository: str, tag: str, quiet: bool) -> str | None:
    digest: list[str] = []

    def watched(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for event in events:
            found = (event.get("aux") or {}).get("Digest")
            if found:
                digest.append(str(found))
            yield event

    with translate_errors(f"push `{repository}:{tag}`"):
        events = client.images.push(repository, tag=tag, stream=True, decode=True)
        _transfers.show(watched(events), _transfers.silent() if quiet else None, "push")
    return digest[-1] if digest else None


def _advice(text: str) -> str:
    if re.search("denied|unauthorized|no basic auth|authentication", text, re.IGNORECASE):
        return "; log in with `docker login`, or give an `image_repo` that you may push to"
    return ""
