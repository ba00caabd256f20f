"""Builds and pushes images with a Docker daemon."""

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchx._docker import image_record, missing_image, pull, show, silent, translate_errors
from torchx._retry import with_retries
from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    DockerRefused,
    InvalidInput,
    TransferFailed,
    UnexpectedReply,
)
from torchx.workspace._ecr import region_of
from torchx.workspace._tar import TarStream

__all__ = ["build", "find_or_pull", "image_id", "push"]

logger = get_logger("torchx.workspace.docker_workspace")

_PUSH_PAUSES_S = (1, 2, 4)
_UNUSED_ARGUMENT = "[Warning] One or more build-args"  # few Dockerfiles use all we offer
_PERMANENT = re.compile(
    "denied|unauthorized|authoriz|authentication|forbidden|no basic auth|not found|name unknown"
    "|does not exist|invalid|malformed|unsupported",
    re.IGNORECASE,
)


def image_id(client: Any, image: str) -> str | None:
    """Returns the id of an image that the daemon has; ``None`` if it does not have it."""
    record = image_record(client, image)
    return None if record is None else str(record["Id"])


def find_or_pull(client: Any, image: str, *, required: bool, quiet: bool = False) -> str | None:
    """Makes sure that the daemon has an image; pulls it only if missing.

    Args:
        quiet: do not show the progress of a pull.
        required: an image that cannot be pulled is an error; otherwise a warning.

    Returns:
        Its id; ``None`` if it cannot be pulled.
    """
    found = image_id(client, image)
    if found is not None:
        return found
    try:
        if image.startswith("sha256:"):
            msg = "it is an image id, and only names can be pulled"
            raise InvalidInput(msg)
        pull(client, image, None if quiet else sys.stderr, _login(image))
        return image_id(client, image)
    except (InvalidInput, BackendUnavailable, DockerRefused) as err:
        if required:
            raise InvalidInput(missing_image(image, err)) from err
        logger.warning("cannot pull image `%s`: %s", image, err)
        return None


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
    try:
        with translate_errors("build the image"):
            events = client.api.build(
                fileobj=context,
                custom_context=True,
                dockerfile=dockerfile,
                buildargs=dict(arguments),
                pull=False,
                rm=True,
                forcerm=True,  # also the container of a failed step
                decode=True,
                labels=dict(labels),
            )
            image, log = _read_build(events, quiet)
    except DockerRefused as err:  # errors of the request as a whole
        raise _build_error()(str(err), []) from None
    except Exception:
        if context.failure is not None:  # the cause of any other error
            raise context.failure from None
        raise
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
        # `message` is the daemon's answer to a request that it refuses as a whole
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
    """Returns the error, and the step that failed, which the daemon logs before it."""
    steps = [str(e.get("stream")).strip() for e in log if e.get("stream")]
    step = next((s for s in reversed(steps) if s.startswith("Step ")), "")
    return f"the image could not be built{f' ({step})' if step else ''}: {reason}"


class _NoImage(UnexpectedReply, AssertionError):
    """The build ended without an image and without an error."""


def _no_image(log: list[Any]) -> _NoImage:
    return _NoImage("docker build", str(log[-3:]))


def push(client: Any, image: str, repository: str, tag: str, *, quiet: bool = False) -> str | None:
    """Pushes a local image as ``repository:tag``; returns its digest in the registry.

    A broken transfer is retried: data that arrived is not sent again, and the tag is set when the
    image is complete.

    Args:
        quiet: do not show the progress.

    Returns:
        ``sha256:…``; ``None`` if the daemon does not say.

    Raises:
        TransferFailed: if the registry refuses, or keeps failing.
        BackendUnavailable: if the daemon fails.
        TorchXError: if AWS returns no log-in for its registry, and none is configured.
    """
    name = f"{repository}:{tag}"
    try:
        with translate_errors(f"tag image `{image}` as `{name}`"):
            client.images.get(image).tag(repository, tag=tag)
    except DockerRefused as err:
        if err.status != 404:
            raise
        raise InvalidInput(f"{err}; build it again") from None

    def transient(err: Exception) -> bool:
        known = isinstance(err, (DockerRefused, BackendUnavailable))
        passing = known and not _PERMANENT.search(str(err))
        if passing:
            logger.warning("cannot push `%s`, trying again: %s", name, err)
        return passing

    login = _login(repository)
    try:
        return with_retries(
            lambda: _push_once(client, repository, tag, quiet, login), _PUSH_PAUSES_S, transient
        )
    except DockerRefused as err:
        msg = f"cannot push `{name}`: {err}{_advice(str(err))}"
        raise TransferFailed(msg, err.status) from err


def _login(image: str) -> dict[str, Any]:
    """Returns the log-in to ECR if none is configured; empty for other registries."""
    from torchx.workspace._registry._auth import aws_credentials, configured_credentials

    host = image.partition("/")[0]
    if region_of(host) is None or configured_credentials(host) is not None:
        return {}
    found = aws_credentials(host)
    assert found is not None  # a host of ECR
    return {"auth_config": {"username": found.username, "password": found.password}}


def _push_once(
    client: Any, repository: str, tag: str, quiet: bool, login: Mapping[str, Any]
) -> str | None:
    digest: list[str] = []

    def watched(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for event in events:
            found = (event.get("aux") or {}).get("Digest")
            if found:
                digest.append(str(found))
            yield event

    with translate_errors(f"push `{repository}:{tag}`"):
        events = client.images.push(repository, tag=tag, stream=True, decode=True, **login)
        show(watched(events), silent() if quiet else None, "push", f"{repository}:{tag[:12]}")
    return digest[-1] if digest else None


def _advice(text: str) -> str:
    if re.search("denied|unauthorized|no basic auth|authentication", text, re.IGNORECASE):
        return "; log in with `docker login`, or give an `image_repo` that you may push to"
    return ""
