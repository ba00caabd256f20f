"""Errors of the Docker daemon: one class and one message for each event."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torchx
from torchx.errors import BackendUnavailable, DockerRefused, TorchXError


def docker_host() -> str:
    """The daemon's address, as the SDK understands it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def translate_errors(doing: str) -> Iterator[None]:
    """Translates errors of the SDK into those of ``torchx.errors``.

    Args:
        doing: the request, for the message: "start container `x`".

    Raises:
        DockerRefused: if the daemon answers with an error.
        BackendUnavailable: if the daemon does not answer.
    """
    import docker
    import requests

    try:
        yield
    except TorchXError:  # the SDK reports a failed build with a class of its own
        raise
    except docker.errors.APIError as err:
        text = str(err.explanation or err).strip()
        raise DockerRefused(f"Docker cannot {doing}: {text}", err.status_code or 0) from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as err:
        raise unavailable(err, doing) from None


def unavailable(err: BaseException, doing: str = "") -> BackendUnavailable:
    """Builds the error for a daemon that does not answer.

    Args:
        err: the exception of the SDK or of the system.
        doing: the request that got no answer; empty for the connection itself.
    """
    reason = _system_message(err) or str(err).partition("\n")[0]
    if "ermission denied" in reason:
        advice = "let your user talk to it, for instance as a member of the group `docker`"
    else:
        advice = "start Docker, or set DOCKER_HOST to where it runs"
    return BackendUnavailable(
        f"{f'cannot {doing}: ' if doing else ''}the Docker daemon at {docker_host()} cannot be"
        f" reached: {reason}; {advice}"
    )


def _system_message(err: object, depth: int = 0) -> str:
    """Returns the operating system's message from a chain of exceptions; empty if there is none."""
    if not isinstance(err, BaseException) or depth > 8:
        return ""
    if isinstance(err, OSError) and err.errno and err.strerror:
        return err.strerror
    for inner in (*err.args, err.__cause__, err.__context__):
        if inner is not err and (found := _system_message(inner, depth + 1)):
            return found
    return ""


def missing_image(image: str, reason: object) -> str:
    """Builds the message for an image that is not on this machine and cannot be pulled."""
    text = f"the image `{image}` is not on this machine and cannot be pulled: {reason}"
    if image != torchx.IMAGE:
        return f"{text}; check its name, and `docker login` where its registry needs it"
    return (
        f"{text}; it is the default of components: give another one with `--image`, or for all with"
        f" TORCHX_IMAGE, or build it in a checkout of TorchX: pip wheel -w wheels '.[fsspec]' pip"
        f" && docker build -f docker/Dockerfile --target torchx -t {image} wheels"
    )
