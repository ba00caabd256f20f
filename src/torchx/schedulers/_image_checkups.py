"""Checks of images and registries by ``torchx doctor``, for jobs in containers."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx.errors import BackendUnavailable, InvalidInput, NotInstalled, TorchXError
from torchx.schedulers._core.checkups import (
    Checkup,
    Configured,
    Finding,
    Verdict,
    broken,
    neutral,
    ok,
    warning,
)
from torchx.schedulers._core.clocks import clock_finding, parse_http_date

if TYPE_CHECKING:
    from torchx.workspace._registry._client import Registry
    from torchx.workspace._registry._reference import Repository

__all__ = ["container_checkups"]

_ANSWER_S = 6.0
"""Timeout for each of the few responses of a registry: a check takes ten seconds at most."""

IsHere = Callable[[str], bool]
"""Returns True if a daemon has the image."""


def container_checkups(configured: Configured, is_here: IsHere | None = None) -> list[Checkup]:
    """Returns checks of the images that jobs may run, and of the registry for new ones.

    Args:
        is_here: returns True for an image that needs no registry; ``None`` if jobs run elsewhere.
    """
    repository = configured.cfg.get("image_repo")
    checks = []
    if repository or is_here is None:
        checks.append(_registry_checkup(str(repository or "")))
    return checks + [_image_checkup(*named, is_here) for named in configured.images.items()]


def _registry_checkup(repository: str) -> Checkup:
    if repository:
        return Checkup("registry", lambda: _answered(lambda: _registry(repository)))
    found = neutral(
        "no `image_repo`: images are run as they are, without a workspace",
        "image_repo = example.com/team/img in .torchxconfig",
    )
    return Checkup("registry", lambda: found)


def _image_checkup(image: str, origin: str, is_here: IsHere | None) -> Checkup:
    return Checkup("image", lambda: _answered(lambda: _image(image, origin, is_here)))


def _answered(ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except NotInstalled as err:
        return neutral(str(err))


# -- registries ----------------------------------------------------------------------------------


def _opened(repository: "Repository", *, push: bool) -> "Registry":
    from torchx.workspace._registry._client import Registry

    return Registry(repository, push=push, hurry_s=_ANSWER_S)


def _registry(text: str) -> Finding:
    from torchx.workspace._registry._auth import find_credentials
    from torchx.workspace._registry._reference import parse_repository

    try:
        repository = parse_repository(text)
    except InvalidInput as err:
        return broken(str(err), "image_repo = example.com/team/img in .torchxconfig")
    host, login = repository.host, f"docker login {repository.host}"
    summary = f"`{host}` answers and needs no log-in"
    try:
        with _opened(repository, push=True) as registry:
            reply = registry.ask(log_in=False)
            if reply.status == 401:
                if find_credentials(host) is None:
                    return broken(f"there is no log-in to `{host}`", login)
                reply = registry.ask(log_in=True)
                summary = f"`{host}` accepts the log-in of Docker's configuration"
            here_s = time.time()
    except BackendUnavailable as err:
        return broken(str(err), "Check `image_repo` and the network")
    except NotInstalled:
        raise
    except TorchXError as err:
        return broken(str(err), login)
    clock = clock_finding(parse_http_date(reply.headers.get("Date", "")), here_s, f"`{host}`")
    if clock.verdict is Verdict.WARNING:
        return warning(f"{summary}; its clock: {clock.text}", clock.fix)
    return ok(summary)


# -- images --------------------------------------------------------------------------------------


def _image(image: str, origin: str, is_here: IsHere | None) -> Finding:
    from torchx.workspace._registry._reference import parse_reference

    if is_here is not None and is_here(image):
        return ok(f"`{image}` is on this machine")
    try:
        reference = parse_reference(image)
        with _opened(reference.repository, push=False) as registry:
            found = registry.find_manifest(reference.version)
    except BackendUnavailable as err:
        return warning(f"cannot tell whether `{image}` exists: {err}", "Check the network")
    except NotInstalled:
        raise
    except TorchXError as err:  # many registries answer the same for private and missing images
        return warning(f"`{image}` cannot be checked: {err}", _advice(origin))
    if found is not None:
        return ok(f"`{image}` is in its registry")
    text = f"`{image}` is not in its registry"
    if not origin:
        return warning(f"the default image {text}", _advice(origin))
    return broken(f"{text}, and is named in {origin}", f"Name another one in {origin}, or push it")


def _advice(origin: str) -> str:
    if origin:
        return f"Check its name in {origin}, and `docker login` where its registry needs it"
    return "Pass --image, or set TORCHX_IMAGE for all jobs"
