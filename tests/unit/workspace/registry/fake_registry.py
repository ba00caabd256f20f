"""A registry in this process: the distribution API over HTTP, with faults on request."""

import base64
import gzip
import hashlib
import importlib
import io
import json
import re
import ssl
import tarfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Fault:
    """What happens to one matching request instead of the usual.

    Args:
        status: answer with this; 0 hangs up.
        after: hang up after so many bytes of the request's body were taken.
        spoil: keep other bytes in the place of those.
        cut_reply: send only so many bytes of the answer's body.
        then: how many matching requests are served before the first fault.
    """

    method: str
    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int | None = None
    spoil: bool = False
    cut_reply: int | None = None
    times: int = 1
    then: int = 0


@dataclass
class FakeRegistry:
    """State of the registry; tests read and change it."""

    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)
    """Names and passwords; empty lets everybody in."""
    bearer: bool = False
    refresh_tokens: set[str] = field(default_factory=set)
    tokens: dict[str, list[str]] = field(default_factory=dict)
    """The scopes of each."""
    token_lifetime: int = 1 << 30
    """How many requests a token serves."""
    token_uses: dict[str, int] = field(default_factory=dict)
    mounts: bool = True
    forgetful: bool = False
    """Whether it does not tell how much of an upload it has."""
    tells_digest: bool = True
    most_body: int = 1 << 40
    host: str = ""
    ahead_s: float = 0.0
    """By how much its clock is wrong."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def did(self, method: str, path: str = "") -> list[str]:
        return [r for r in self.requests if r.startswith(method + " ") and re.search(path, r)]

    def add_blob(self, repo: str, data: bytes) -> str:
        self.blobs.setdefault(repo, {})[digest_of(data)] = data
        return digest_of(data)

    def add_manifest(self, repo: str, tag: str, media_type: str, content: Any) -> str:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        for name in (tag, digest_of(data)):
            self.manifests[repo, name] = (media_type, data)
        return digest_of(data)

    def add_image(
        self,
        repo: str = "team/base",
        tag: str = "1",
        *,
        layers: Iterable[bytes] = (),
        settings: dict[str, Any] | None = None,
        oci: bool = False,
        compression: str = "gzip",
        **config: Any,
    ) -> str:
        """Adds an image of tar archives, and gives the digest of its manifest."""
        raw = list(layers) or [tar_of({"etc/": 0o755, "etc/os": b"linux"})]
        content = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2020-01-01T00:00:00Z",
            "config": settings or {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(r) for r in raw]},
            "history": [{"created_by": f"layer {n}"} for n in range(len(raw))],
            **config,
        }
        data = json.dumps(content).encode()
        packed = [_PACKERS[compression](r) for r in raw]
        suffix = {"gzip": "+gzip", "none": "", "zstd": "+zstd"}[compression]
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST if oci else DOCKER_MANIFEST,
            "config": {
                "mediaType": OCI_CONFIG if oci else DOCKER_CONFIG,
                "digest": self.add_blob(repo, data),
                "size": len(data),
            },
            "layers": [
                {
                    "mediaType": OCI_LAYER + suffix if oci else DOCKER_LAYER,
                    "digest": self.add_blob(repo, p),
                    "size": len(p),
                }
                for p in packed
            ],
        }
        return self.add_manifest(repo, tag, OCI_MANIFEST if oci else DOCKER_MANIFEST, manifest)

    def image(self, repo: str, version: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Manifest and configuration of an image; fails unless all of it is there."""
        manifest = json.loads(self.manifests[repo, version][1])
        config = self.blobs[repo][manifest["config"]["digest"]]
        assert len(config) == manifest["config"]["size"]
        for layer in manifest["layers"]:
            assert len(self.blobs[repo][layer["digest"]]) == layer["size"]
        content = json.loads(config)
        assert len(content["rootfs"]["diff_ids"]) == len(manifest["layers"])
        return manifest, content

    def top_layer(self, repo: str, version: str) -> tarfile.TarFile:
        """The last layer of an image, checked against its two digests."""
        manifest, config = self.image(repo, version)
        raw = gzip.decompress(self.blobs[repo][manifest["layers"][-1]["digest"]])
        assert digest_of(raw) == config["rootfs"]["diff_ids"][-1]
        return tarfile.open(fileobj=io.BytesIO(raw))

    def serve(
        self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> Callable[[], None]:
        """Starts to listen on a free port; gives what ends it."""
        state = self

        class Handler(_Handler):
            registry = state

        server = _Server((address, 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.host = f"localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of these tests hang up all the time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: FakeRegistry

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """For the header ``Date``."""
        return super().date_time_string(time.time() + self.registry.ahead_s)

    def _serve(self) -> None:
        registry = self.registry
        parts = urllib.parse.urlsplit(self.path)
        self.query = {k: v[0] for k, v in urllib.parse.parse_qs(parts.query).items()}
        self.scopes = urllib.parse.parse_qs(parts.query).get("scope", [])
        with registry.lock:
            registry.requests.append(f"{self.command} {self.path}")
            registry.headers.append(dict(self.headers))
            fault = self._fault(parts.path)
        self.cut_reply: int | None = None
        if fault and not self._suffer(fault):
            return
        if parts.path == "/token":
            self._token()
        elif self._allowed(parts.path):
            self._route(parts.path)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _fault(self, path: str) -> Fault | None:
        for fault in self.registry.faults:
            if fault.times and fault.method == self.command and re.search(fault.path, path):
                if fault.then:
                    fault.then -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def _suffer(self, fault: Fault) -> bool:
        """Whether the request is served all the same."""
        if fault.cut_reply is not None:
            self.cut_reply = fault.cut_reply
            return True
        if fault.after is not None:
            taken = self.rfile.read(fault.after)
            upload = self.registry.uploads.get(self.path.split("?")[0].rpartition("/")[2])
            with self.registry.lock:
                if upload is not None:
                    upload += bytes(len(taken)) if fault.spoil else taken
            self._hang_up()
            return False
        if not fault.status:
            self._hang_up()
            return False
        self._body()
        self._reply(fault.status, fault.body, fault.headers)
        return False

    def _hang_up(self) -> None:
        import socket

        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _token(self) -> None:
        registry = self.registry
        form = urllib.parse.parse_qs(self._body().decode())
        user, password = self._basic()
        scopes = self.scopes
        if form:
            known = form["refresh_token"][0] in registry.refresh_tokens
            scopes = form["scope"][0].split()
        else:
            known = registry.users.get(user) == password and bool(user)
        if registry.users and not known and (user or form):
            self._error(401, "UNAUTHORIZED", "incorrect username or password")
            return
        with registry.lock:
            token = f"token{len(registry.tokens)}"
            registry.tokens[token] = scopes if known or not registry.users else []
        self._reply(200, json.dumps({"token": token}).encode())

    def _basic(self) -> tuple[str, str]:
        given = self.headers.get("Authorization", "")
        if not given.startswith("Basic "):
            return "", ""
        user, _, password = base64.b64decode(given[len("Basic ") :]).decode().partition(":")
        return user, password

    def _allowed(self, path: str) -> bool:
        registry = self.registry
        if not registry.users and not registry.bearer:
            return True
        if not registry.bearer:
            user, password = self._basic()
            if user and registry.users.get(user) == password:
                return True
            challenge = 'Basic realm="test registry"'
        else:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            with registry.lock:
                uses = registry.token_uses[token] = registry.token_uses.get(token, 0) + 1
            if token in registry.tokens and uses <= registry.token_lifetime:
                if self._granted(path, registry.tokens[token]):
                    return True
                self._body()
                self._error(403, "DENIED", "requested access to the resource is denied")
                return False
            challenge = f'Bearer realm="http://{registry.host}/token",service="fake",scope="x"'
        self._body()
        self._error(401, "UNAUTHORIZED", "authentication required", {"WWW-Authenticate": challenge})
        return False

    def _granted(self, path: str, scopes: list[str]) -> bool:
        if path == "/v2/":
            return True
        needed = "pull" if self.command in ("GET", "HEAD") else "push"
        repo = path.removeprefix("/v2/").partition("/manifests")[0].partition("/blobs")[0]
        parts = [scope.split(":") for scope in scopes]
        return any(name == repo and needed in rights.split(",") for _, name, rights in parts)

    def _route(self, path: str) -> None:
        registry = self.registry
        if match := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            self._manifest(match[1], match[2])
        elif match := re.fullmatch(r"/v2/(.+)/blobs/uploads/", path):
            self._start_upload(match[1])
        elif match := re.fullmatch(r"/v2/(.+)/blobs/uploads/(\w+)", path):
            self._upload(match[1], match[2])
        elif match := re.fullmatch(r"/v2/(.+)/blobs/(.+)", path):
            data = registry.blobs.get(match[1], {}).get(match[2])
            if data is None:
                self._error(404, "BLOB_UNKNOWN", "blob unknown to registry")
            elif asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
                self._reply(206, data[int(asked[1]) :])
            else:
                self._reply(200, data)
        elif path == "/v2/":
            self._reply(200, b"{}")
        else:
            self._error(404, "NAME_UNKNOWN", "no such thing")

    def _manifest(self, repo: str, version: str) -> None:
        registry = self.registry
        if self.command == "PUT":
            data = self._body()
            for part in (json.loads(data)["config"], *json.loads(data)["layers"]):
                if part["digest"] not in registry.blobs.get(repo, {}) and not part.get("urls"):
                    self._error(400, "MANIFEST_BLOB_UNKNOWN", f"{part['digest']} is not here")
                    return
            with registry.lock:
                registry.add_manifest(repo, version, self.headers["Content-Type"], data)
            self._reply(201, b"", self._digest(data))
            return
        found = registry.manifests.get((repo, version))
        if found is None:
            self._error(404, "MANIFEST_UNKNOWN", f"manifest tagged by {version!r} is not found")
            return
        self._reply(200, found[1], {"Content-Type": found[0], **self._digest(found[1])})

    def _digest(self, data: bytes) -> dict[str, str]:
        return {"Docker-Content-Digest": digest_of(data)} if self.registry.tells_digest else {}

    def _start_upload(self, repo: str) -> None:
        registry = self.registry
        self._body()
        digest, source = self.query.get("mount", ""), self.query.get("from", "")
        if registry.mounts and digest in registry.blobs.get(source, {}):
            registry.add_blob(repo, registry.blobs[source][digest])
            self._reply(201)
            return
        with registry.lock:
            name = uuid.uuid4().hex
            registry.uploads[name] = bytearray()
        self._reply(202, b"", {"Location": f"/v2/{repo}/blobs/uploads/{name}?state=1"})

    def _upload(self, repo: str, name: str) -> None:
        registry = self.registry
        upload = registry.uploads.get(name)
        if upload is None:
            self._body()
            self._error(404, "BLOB_UPLOAD_UNKNOWN", "upload unknown")
        elif self.command == "PATCH":
            self._patch(repo, name, upload)
        elif self.command == "PUT":
            if self._complete(repo, name, upload):
                self._reply(201)
            else:
                self._error(400, "DIGEST_INVALID", "provided digest did not match")
        elif self.command == "DELETE":
            del registry.uploads[name]
            self._reply(204)
        elif registry.forgetful:
            del registry.uploads[name]
            self._error(404, "BLOB_UPLOAD_UNKNOWN", "upload unknown")
        else:
            self._reply(204, b"", self._progress(repo, name, upload))

    def _complete(self, repo: str, name: str, upload: bytearray) -> bool:
        """Keeps the blob if it is the one that was promised."""
        rest = self._body()
        with self.registry.lock:
            upload += rest
            data = bytes(upload)
            if digest_of(data) != self.query["digest"]:
                return False
            self.registry.add_blob(repo, data)
            self.registry.uploads.pop(name, None)
            return True

    def _patch(self, repo: str, name: str, upload: bytearray) -> None:
        if int(self.headers["Content-Length"]) > self.registry.most_body:
            self.close_connection = True
            self._reply(413, b"<html>too large</html>")
            return
        start = int(self.headers.get("Content-Range", "0-").partition("-")[0])
        data = self._body()  # of one that breaks, a part: another one may have followed it
        with self.registry.lock:
            fits = start == len(upload)
            upload += data if fits else b""
        self._reply(202 if fits else 416, b"", self._progress(repo, name, upload))

    def _progress(self, repo: str, name: str, upload: bytearray) -> dict[str, str]:
        return {
            "Location": f"http://{self.registry.host}/v2/{repo}/blobs/uploads/{name}",
            "Range": f"0-{max(len(upload) - 1, 0)}",
        }

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _error(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        self._reply(status, body, {"Content-Type": "application/json", **(headers or {})})

    def _reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD" or status == 204:
            return
        if self.cut_reply is not None:
            self.wfile.write(body[: self.cut_reply])
            self._hang_up()
            return
        self.wfile.write(body)


def _pack_zstd(data: bytes) -> bytes:
    """Two frames, as parallel compressors make."""
    try:
        compress = importlib.import_module("compression.zstd").compress  # Python 3.14
    except ImportError:
        compress = importlib.import_module("zstandard").compress
    half = len(data) // 2
    return bytes(compress(data[:half]) + compress(data[half:]))


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "none": bytes,
    "zstd": _pack_zstd,
}


def tar_of(content: dict[str, Any]) -> bytes:
    """A tar archive: ``{"dir/": mode, "file": bytes, "link": "-> target", "x": (mode, uid)}``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, what in content.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
                member.mode, member.uid, member.gid = (
                    what if isinstance(what, tuple) else (what, 0, 0)
                )
                tar.addfile(member)
            elif isinstance(what, str):
                member.type = tarfile.SYMTYPE
                member.linkname = what.removeprefix("-> ")
                tar.addfile(member)
            else:
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
    return out.getvalue()
