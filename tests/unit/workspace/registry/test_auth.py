"""Log-ins that `docker login` left, and what registries ask for."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import InvalidInput
from torchx.workspace._registry._auth import (
    Credentials,
    find_credentials,
    parse_challenges,
)


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def docker_env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "docker").mkdir()
    return {
        "DOCKER_CONFIG": str(tmp_path / "docker"),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


def write_config(env: dict[str, str], content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (Path(env["DOCKER_CONFIG"]) / "config.json").write_text(text)


def add_helper(env: dict[str, str], name: str, script: str) -> None:
    path = Path(env["PATH"].split(os.pathsep)[0]) / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\nread -r server\n{script}\n")
    path.chmod(0o755)


def test_without_a_configuration_a_registry_is_asked_anonymously(
    docker_env: dict[str, str],
) -> None:
    assert find_credentials("h.io", docker_env) is None
    write_config(docker_env, {})
    assert find_credentials("h.io", docker_env) is None
    write_config(docker_env, {"auths": {"h.io": {}}})
    assert find_credentials("h.io", docker_env) is None


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("h.io", "h.io"),
        ("https://h.io", "h.io"),
        ("https://h.io/v1/", "h.io"),
        ("localhost:5000", "localhost:5000"),
        ("https://index.docker.io/v1/", "docker.io"),
    ],
)
def test_a_log_in_is_found_by_host(docker_env: dict[str, str], key: str, host: str) -> None:
    write_config(docker_env, {"auths": {"other.io": auth("no", "no"), key: auth("me", "a:b")}})
    assert find_credentials(host, docker_env) == Credentials("me", "a:b")


def test_an_identity_token_goes_before_the_password(docker_env: dict[str, str]) -> None:
    entry = {**auth("me", "old"), "identitytoken": "tok"}
    write_config(docker_env, {"auths": {"h.io": entry}})
    assert find_credentials("h.io", docker_env) == Credentials("me", identity_token="tok")


def test_a_helper_of_the_host_goes_before_the_store(docker_env: dict[str, str]) -> None:
    add_helper(docker_env, "one", 'echo "{\\"Username\\": \\"one\\", \\"Secret\\": \\"$server\\"}"')
    add_helper(docker_env, "all", 'echo "{\\"Username\\": \\"all\\", \\"Secret\\": \\"$server\\"}"')
    write_config(docker_env, {"credsStore": "all", "credHelpers": {"h.io": "one"}})
    assert find_credentials("h.io", docker_env) == Credentials("one", "h.io")
    assert find_credentials("g.io:1", docker_env) == Credentials("all", "g.io:1")
    hub = find_credentials("docker.io", docker_env)
    assert hub == Credentials("all", "https://index.docker.io/v1/")


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io"])
def test_a_helper_of_docker_hub_is_found_by_the_name_that_docker_gives_it(
    docker_env: dict[str, str], key: str
) -> None:
    add_helper(docker_env, "x", 'echo "{\\"Username\\": \\"me\\", \\"Secret\\": \\"$server\\"}"')
    write_config(docker_env, {"credHelpers": {key: "x"}})
    found = find_credentials("docker.io", docker_env)
    assert found == Credentials("me", "https://index.docker.io/v1/")


def test_a_helper_may_give_a_token(docker_env: dict[str, str]) -> None:
    add_helper(docker_env, "x", """echo '{"Username": "<token>", "Secret": "tok"}'""")
    write_config(docker_env, {"credsStore": "x"})
    assert find_credentials("h.io", docker_env) == Credentials(identity_token="tok")


def test_a_store_that_knows_nothing_leaves_the_file_to_answer(docker_env: dict[str, str]) -> None:
    add_helper(docker_env, "x", "echo 'credentials not found in native keychain'; exit 1")
    write_config(docker_env, {"credsStore": "x", "auths": {"h.io": auth("me", "pw")}})
    assert find_credentials("h.io", docker_env) == Credentials("me", "pw")
    assert find_credentials("g.io", docker_env) is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'the keyring is locked' >&2; exit 1", "keyring is locked"),
        ("echo 'no json'", "did not answer with Username"),
        ("echo '[]'", "did not answer with Username"),
    ],
)
def test_a_helper_that_fails_is_named(docker_env: dict[str, str], script: str, words: str) -> None:
    add_helper(docker_env, "x", script)
    write_config(docker_env, {"credsStore": "x"})
    with pytest.raises(InvalidInput, match=words) as caught:
        find_credentials("h.io", docker_env)
    assert "docker-credential-x" in str(caught.value)


def test_a_helper_that_is_not_installed_is_named(docker_env: dict[str, str]) -> None:
    for name in ("gone", "../../bin/sh"):
        write_config(docker_env, {"credHelpers": {"h.io": name}})
        with pytest.raises(InvalidInput, match="is not in PATH"):
            find_credentials("h.io", docker_env)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold a JSON object"),
        ({"auths": []}, ""),
        ({"auths": [1]}, "`auths`"),
        ({"auths": {"h.io": {"auth": "%%"}}}, "not base64"),
        ({"auths": {"h.io": {"auth": "bm9jb2xvbg=="}}}, "not base64 of name:password"),
    ],
)
def test_a_broken_configuration_is_named(
    docker_env: dict[str, str], content: Any, words: str
) -> None:
    write_config(docker_env, content)
    if not words:
        assert find_credentials("h.io", docker_env) is None
        return
    with pytest.raises(InvalidInput, match=words) as caught:
        find_credentials("h.io", docker_env)
    assert "config.json" in str(caught.value)


def test_credentials_do_not_show_their_secrets() -> None:
    assert "pw" not in repr(Credentials("me", "pw-1", "pw-2"))


def test_challenges_are_read_in_all_their_forms() -> None:
    header = 'Bearer realm="https://a/t?x=1,2",service="s \\"q\\"",scope="repository:a/b:pull,push"'
    (one,) = parse_challenges(header)
    assert one.scheme == "bearer"
    assert one.params == {
        "realm": "https://a/t?x=1,2",
        "service": 's "q"',
        "scope": "repository:a/b:pull,push",
    }
    found = parse_challenges('Basic realm="r", charset=UTF-8, Bearer realm="x"')
    assert [c.scheme for c in found] == ["basic", "bearer"]
    assert parse_challenges("") == []
