"""Log-ins from the user's Docker configuration, and the challenges of registries."""

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from torchx.errors import InvalidInput
from torchx.workspace._ecr import region_of, request_login
from torchx.workspace._registry._reference import DOCKER_HUB
from torchx.workspace._registry._request import Request

_HUB_KEY = "https://index.docker.io/v1/"
_TOKEN_USER = "<token>"
_HELPER_TIMEOUT_S = 60


@dataclass(frozen=True)
class Credentials:
    """The log-in to one registry; an ``identity_token`` replaces the password."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:  # never a secret in a log or a traceback
        return f"Credentials(username={self.username!r}, ...)"

    def basic(self) -> str:
        """Returns the header ``Authorization`` for name and password."""
        pair = f"{self.username}:{self.password}".encode()
        return "Basic " + base64.b64encode(pair).decode()


@dataclass(frozen=True)
class Challenge:
    """A registry's request for a log-in: ``WWW-Authenticate`` of its answer 401."""

    scheme: str
    params: Mapping[str, str]


def parse_challenges(header: str) -> list[Challenge]:
    """Parses ``Bearer realm="https://…",service="…"``; one header may hold several."""
    found: list[tuple[str, dict[str, str]]] = []
    pattern = r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([A-Za-z][A-Za-z0-9-]*)'
    for name, quoted, plain, scheme in re.findall(pattern, header):
        if scheme:
            found.append((scheme.lower(), {}))
        elif found:
            found[-1][1][name.lower()] = re.sub(r"\\(.)", r"\1", quoted) or plain
    return [Challenge(scheme, params) for scheme, params in found]


def token_request(
    realm: str, service: str | None, scopes: Sequence[str], credentials: Credentials | None
) -> Request:
    """Returns the request for a token from the server that a registry named.

    https://distribution.github.io/distribution/spec/auth/token/
    """
    query = [("service", service)] if service else []
    expected = frozenset({200, 400, 401, 403, 404})
    if credentials and credentials.identity_token:
        query += [
            ("grant_type", "refresh_token"),
            ("client_id", "torchx"),
            ("refresh_token", credentials.identity_token),
            ("scope", " ".join(scopes)),
        ]
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return Request("POST", realm, "log in", form, urlencode(query).encode(), expected)
    query += [("scope", scope) for scope in scopes]
    headers = {}
    if credentials:
        query.append(("account", credentials.username))
        headers["Authorization"] = credentials.basic()
    joint = "&" if "?" in realm else "?"
    return Request("GET", f"{realm}{joint}{urlencode(query)}", "log in", headers, None, expected)


def find_credentials(host: str, env: Mapping[str, str] = os.environ) -> Credentials | None:
    """Finds the log-in to a registry: from ``docker login``, or a token of AWS for ECR.

    Returns:
        ``None`` if there is none: requests are then anonymous.

    Raises:
        InvalidInput: if Docker's configuration cannot be read, or a credential helper of it fails.
        TorchXError: if AWS gives no token.
    """
    return configured_credentials(host, env) or aws_credentials(host)


def aws_credentials(host: str) -> Credentials | None:
    """Requests a log-in from AWS for its own registries; ``None`` for any other."""
    region = region_of(host)
    return None if region is None else Credentials(*request_login(host, region))


def configured_credentials(host: str, env: Mapping[str, str] = os.environ) -> Credentials | None:
    """Reads the log-in to a registry from Docker's ``config.json``, written by ``docker login``.

    Returns:
        ``None`` if there is none.

    Raises:
        InvalidInput: if the file cannot be read, or a credential helper of it fails.
    """
    path = _config_path(env)
    config = _load(path)
    server = _HUB_KEY if host == DOCKER_HUB else host  # its name in Docker's own files
    helpers = _mapping(config, "credHelpers", path)
    helper = helpers.get(server) or helpers.get(host) or config.get("credsStore")
    if helper:
        found = _ask_helper(str(helper), server, path, env)
        if found:
            return found
    auths = _mapping(config, "auths", path)
    for key, entry in auths.items():
        if _host_of(key) == host and isinstance(entry, dict):
            found = _from_entry(entry, key, path)
            if found:
                return found
    return None


def _config_path(env: Mapping[str, str]) -> str:
    folder = env.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
    return os.path.join(folder, "config.json")


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as err:
        msg = f"Docker's configuration `{path}` cannot be read: {err}; repair it or log in again"
        raise InvalidInput(msg) from None
    if not isinstance(config, dict):
        msg = f"Docker's configuration `{path}` must hold a JSON object; repair it or log in again"
        raise InvalidInput(msg)
    return config


def _mapping(config: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        msg = f"`{key}` in Docker's configuration `{path}` must be a JSON object"
        raise InvalidInput(msg)
    return value


def _host_of(key: str) -> str:
    """Returns the host of a key of ``auths``: keys may be URLs."""
    host = re.sub(r"^https?://", "", key).partition("/")[0]
    return DOCKER_HUB if host in ("index.docker.io", "registry-1.docker.io") else host


def _from_entry(entry: Mapping[str, Any], key: str, path: str) -> Credentials | None:
    token = str(entry.get("identitytoken") or "")
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            text = base64.b64decode(str(entry["auth"]), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = ""
        username, colon, password = text.partition(":")
        if not colon:
            msg = f"`auth` of `{key}` in `{path}` is not base64 of name:password; log in again"
            raise InvalidInput(msg)
        password = password.strip("\0")
    if token:
        return Credentials(username, identity_token=token)
    return Credentials(username, password) if username else None


def _ask_helper(name: str, server: str, path: str, env: Mapping[str, str]) -> Credentials | None:
    """Runs ``docker-credential-NAME get``; ``None`` if it does not know the server."""
    import shutil
    import subprocess

    program = f"docker-credential-{name}"
    where = shutil.which(program, path=env.get("PATH"))
    if os.sep in name or where is None:
        msg = f"`{path}` names the credential helper `{name}`, but `{program}` is not in PATH"
        raise InvalidInput(msg)
    try:
        done = subprocess.run(
            [where, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=_HELPER_TIMEOUT_S,
            env=dict(env),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        problem = "did not answer" if isinstance(err, subprocess.TimeoutExpired) else str(err)
        raise InvalidInput(f"the credential helper `{program}` {problem}; log in again") from None
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        if "not found" in said.lower():
            return None
        msg = f"the credential helper `{program}` failed for `{server}`: {said:.300}"
        raise InvalidInput(msg)
    try:
        reply = json.loads(done.stdout)
        username, secret = str(reply["Username"]), str(reply["Secret"])
    except (ValueError, KeyError, TypeError):
        msg = f"the credential helper `{program}` did not answer with Username and Secret"
        raise InvalidInput(msg) from None
    if username == _TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(username, secret)
