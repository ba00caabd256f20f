"""The Dockerfile of a workspace's image, and the options of its builder."""

import re
from collections.abc import Iterable, Mapping

from torchx._projects.entry import Entry, open_entry
from torchx.errors import InvalidInput
from torchx.specs.api import CfgVal, runopts

TORCHX_DOCKERFILE = "Dockerfile.torchx"
DEFAULT_DOCKERFILE = b"""
ARG IMAGE
FROM $IMAGE

COPY . .
"""

AUTO, DOCKER, REGISTRY = "auto", "docker", "registry"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")

_REPO_HELP = (
    "repository that built images are pushed to, such as example.com/team/img; needed by backends"
    " that run elsewhere"
)
_LOCAL_REPO_HELP = (
    "repository that `image_builder=registry` pushes images to, such as example.com/team/img; not"
    " needed otherwise"
)
_BUILDER_HELP = (
    "`docker`: a Docker daemon builds; `registry`: the workspace is added to the image in the"
    " registry, without a daemon; "
)
_AUTO_HELP = (
    f"`auto`: the second, if `image_repo` is given and the workspace has no {TORCHX_DOCKERFILE}"
)
_LOCAL_AUTO_HELP = "`auto`: the first, as the daemon that runs the job is needed anyway"


def image_opts(runs_elsewhere: bool) -> runopts:
    """Options: the repository of images, their builder, and how much is shown."""
    opts = runopts()
    opts.add(
        "image_repo",
        type_=str,
        default=None,
        help=_REPO_HELP if runs_elsewhere else _LOCAL_REPO_HELP,
    )
    opts.add(
        "image_builder",
        type_=str,
        default=AUTO,
        help=_BUILDER_HELP + (_AUTO_HELP if runs_elsewhere else _LOCAL_AUTO_HELP),
    )
    opts.add(
        "quiet",
        type_=bool,
        default=False,
        help="do not show the output of image builds, nor the progress of pulls and pushes",
    )
    return opts


def has_dockerfile(entries: Iterable[Entry]) -> bool:
    """Returns True if a workspace has its own Dockerfile."""
    return any(e.path == TORCHX_DOCKERFILE and e.kind != "dir" for e in entries)


def own_dockerfile(entries: Iterable[Entry]) -> str:
    """Returns the content of a workspace's Dockerfile; empty if it has none."""
    for entry in entries:
        if entry.path == TORCHX_DOCKERFILE and entry.kind == "file":
            with open_entry(entry) as file:
                return file.read().decode("utf-8", "replace")
    return ""


def with_dockerfile(entries: list[Entry]) -> list[Entry]:
    """Returns the files of a build: the workspace, with the default Dockerfile if it has none."""
    if has_dockerfile(entries):
        return entries
    size = len(DEFAULT_DOCKERFILE)
    default = Entry(TORCHX_DOCKERFILE, "file", 0o644, size, content=DEFAULT_DOCKERFILE)
    return [*entries, default]


def image_repo(cfg: Mapping[str, CfgVal]) -> str | None:
    """Returns the repository that images are pushed to; refuses invalid names."""
    repository = cfg.get("image_repo")
    if repository is None or repository == "":
        return None
    if not isinstance(repository, str) or not _REPOSITORY.fullmatch(repository):
        msg = (
            f"`image_repo` is `{repository}`, which is not the name of a repository; write it in"
            " small letters and without a tag, such as `example.com/team/img`"
        )
        raise InvalidInput(msg)
    return repository


def image_builder(cfg: Mapping[str, CfgVal]) -> str:
    """Returns the builder of images: one of the three names, ``AUTO`` by default."""
    choice = cfg.get("image_builder") or AUTO
    if choice not in (AUTO, DOCKER, REGISTRY):
        msg = f"`image_builder` is `{choice}`; it can be `auto`, `docker` or `registry`"
        raise InvalidInput(msg)
    return str(choice)
