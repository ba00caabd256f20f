"""Names of images and of repositories."""

import re
from dataclasses import dataclass

from torchx.errors import InvalidInput

DOCKER_HUB = "docker.io"

_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")
_HUB_API_HOST = "registry-1.docker.io"
_MAX_NAME = 255
_MAX_PORT = 65535

# https://github.com/distribution/reference: what Docker itself accepts
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])(?::[0-9]{{1,5}})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@dataclass(frozen=True)
class Repository:
    """A repository of a registry.

    Args:
        host: as users write it, with a port if any: ``docker.io``, ``localhost:5000``.
        path: name below the host: ``library/python``.
    """

    host: str
    path: str

    @property
    def api_host(self) -> str:
        """The host that serves the registry's API."""
        return _HUB_API_HOST if self.host == DOCKER_HUB else self.host

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"


@dataclass(frozen=True)
class Reference:
    """A reference to an image: repository, and tag or digest."""

    repository: Repository
    tag: str | None
    digest: str | None

    @property
    def version(self) -> str:
        """The image's name in the API: its digest, else its tag."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Parses the name of an image as Docker does.

    >>> str(parse_reference("python"))
    'docker.io/library/python:latest'
    >>> str(parse_reference("localhost:5000/team/app:v1"))
    'localhost:5000/team/app:v1'

    Raises:
        InvalidInput: if it is not a name that a registry can have.
    """
    name, at, digest = text.partition("@")
    if re.fullmatch(r"(?:sha256:)?[0-9a-f]{64}", text):
        msg = (
            f"`{text}` is the id of an image of a local daemon, which no registry knows; give the"
            " image as name:tag, or build with image_builder=docker"
        )
        raise InvalidInput(msg)
    if at and not _DIGEST.fullmatch(digest):
        raise InvalidInput(_not_an_image(text, f"`{digest}` is not a digest such as sha256:0a1b…"))
    before, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise InvalidInput(_not_an_image(text, f"`{tag}` is not a tag"))
    repository = _repository(text, before + slash + last)
    return Reference(repository, tag or (None if digest else "latest"), digest or None)


def parse_repository(text: str) -> Repository:
    """Parses the name of a repository: an image's without tag and digest.

    Raises:
        InvalidInput: if it is not such a name.
    """
    last = text.rpartition("/")[2]
    if "@" in text or (":" in last and "/" in text):
        msg = f"the image_repo `{text}` has a tag or digest; leave it out: the image gets its own"
        raise InvalidInput(msg)
    return _repository(text, text)


def is_digest(text: object) -> bool:
    """Returns True for the digest of a blob: a name that is safe in URLs and paths."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _repository(text: str, name: str) -> Repository:
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or set(first) & set(".:[") or first.lower() != first):
        host, path = first, rest
    else:
        host, path = DOCKER_HUB, name
    port = host.rpartition(":")[2]
    if not _HOST.fullmatch(host) or (port.isdecimal() and int(port) > _MAX_PORT):
        raise InvalidInput(_not_an_image(text, f"`{host}` is not a host or host:port"))
    if host in _HUB_NAMES:
        host = DOCKER_HUB
        path = path if "/" in path else f"library/{path}"
    if not _PATH.fullmatch(path) or len(host) + 1 + len(path) > _MAX_NAME:
        reason = f"`{path}` may have lower-case letters, digits and single . _ - / between them"
        raise InvalidInput(_not_an_image(text, reason))
    return Repository(host, path)


def _not_an_image(text: str, reason: str) -> str:
    return f"`{text}` is not the name of an image: {reason}; write [host[:port]/]path[:tag]"
