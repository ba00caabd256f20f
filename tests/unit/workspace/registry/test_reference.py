"""Names of images."""

import pytest

from torchx.errors import InvalidInput
from torchx.workspace._registry._reference import parse_reference, parse_repository

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "host", "path", "tag", "digest"),
    [
        ("python", "docker.io", "library/python", "latest", None),
        ("python:3.11-slim", "docker.io", "library/python", "3.11-slim", None),
        ("pytorch/pytorch", "docker.io", "pytorch/pytorch", "latest", None),
        ("docker.io/python", "docker.io", "library/python", "latest", None),
        ("index.docker.io/a/b:1", "docker.io", "a/b", "1", None),
        ("localhost/x", "localhost", "x", "latest", None),
        ("localhost:5000/team/x:v1", "localhost:5000", "team/x", "v1", None),
        ("ghcr.io/a/b/c", "ghcr.io", "a/b/c", "latest", None),
        ("[::1]:5000/x:1", "[::1]:5000", "x", "1", None),
        (f"x@{DIGEST}", "docker.io", "library/x", None, DIGEST),
        (f"h.io/x:1@{DIGEST}", "h.io", "x", "1", DIGEST),
        ("HOST/x", "HOST", "x", "latest", None),
        ("h.io/a__b/c-d.e", "h.io", "a__b/c-d.e", "latest", None),
    ],
)
def test_an_image_has_the_defaults_of_docker(
    text: str, host: str, path: str, tag: str | None, digest: str | None
) -> None:
    found = parse_reference(text)
    assert (found.repository.host, found.repository.path) == (host, path)
    assert (found.tag, found.digest) == (tag, digest)
    assert found.version == (digest or tag)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "A", "a b", "a:", "a:b c", "a:-x", "a@sha256:12", "a@", "/a", "a/", "a//b"),
        *("h.io/", "h.io/A", "h.io:x/a", "https://h.io/a", "a:1:2", "a/../b", "a\nb", "é/x"),
        "h.io/" + "a" * 260,
        "h.io:65536/a",
        "a:" + "t" * 129,
    ],
)
def test_what_is_not_an_image_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not the name of an image") as caught:
        parse_reference(text)
    assert "[host[:port]/]path[:tag]" in str(caught.value)


@pytest.mark.parametrize("text", [DIGEST, DIGEST.removeprefix("sha256:")])
def test_an_id_of_a_local_daemon_is_told_from_a_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="image_builder=docker"):
        parse_reference(text)


def test_docker_hub_is_served_by_another_host() -> None:
    assert parse_reference("python").repository.api_host == "registry-1.docker.io"
    assert parse_reference("h.io:1/x").repository.api_host == "h.io:1"


def test_a_repository_is_an_image_without_tag() -> None:
    assert str(parse_repository("localhost:5000/a/b")) == "localhost:5000/a/b"
    for text in ("h.io/a:1", f"h.io/a@{DIGEST}", "a/b:1"):
        with pytest.raises(InvalidInput, match="leave it out"):
            parse_repository(text)
    with pytest.raises(InvalidInput, match="not the name of an image"):
        parse_repository("h.io/A b")
