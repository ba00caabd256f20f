"""A Docker daemon and its containers, as far as a run from the command line needs them."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from tests.unit.schedulers.docker.fake_daemon import FakeDaemon, frame

BASE = "sha256:" + "b" * 64
BUILT = "sha256:" + "5e1d8c0a47bf" + "c" * 52
_LAYER_BYTES = 40_000_000
LAYERS = [f"{number:x}" * 12 for number in range(1, 6)]
STEPS = ["FROM ${IMAGE}", "COPY . .", "RUN pip install -r requirements.txt"]


class DockerHost(FakeDaemon):
    """Has no image at first; its containers print a line and end well as soon as they start."""

    def __init__(self) -> None:
        self.images: dict[str, str] = {}
        self.rows: list[dict[str, Any]] = []
        super().__init__(
            {
                ("POST", "/images/create"): self._pull,
                ("POST", "/build"): self._build,
                ("POST", "/images/"): self._image,
                ("GET", "/images/"): self._image,
                ("GET", "/networks"): (200, [{"Name": "torchx", "Id": "n", "Labels": {}}]),
                ("GET", "/info"): (200, {}),
                ("GET", "/events"): lambda *_: (200, iter(())),
                ("GET", "/containers/json"): lambda *_: (200, self.rows),
                ("POST", "/containers/create"): self._create,
                ("GET", "/containers/"): self._container,
                ("POST", "/containers/"): self._start,
            }
        )

    def _pull(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Iterator[bytes]]:
        self.images[f"{query['fromImage']}:{query['tag']}"] = BASE
        return 200, _events(_transfer("Pulling fs layer", "Downloading", "Pull complete"))

    def _build(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Iterator[bytes]]:
        self.images[BUILT] = BUILT
        steps = [{"stream": f"Step {i}/3 : {text}\n"} for i, text in enumerate(STEPS, 1)]
        return 200, _events([*steps, {"aux": {"ID": BUILT}}])

    def _image(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        name, _, verb = path.removeprefix("/images/").rpartition("/")
        if verb == "push":
            digest = "sha256:" + "d" * 64
            done = {"aux": {"Tag": query["tag"], "Digest": digest}}
            return 200, _events([*_transfer("Preparing", "Pushing", "Pushed"), done])
        if name not in self.images:
            return 404, {"message": f"No such image: {name}"}
        if verb == "tag":
            return 201, None
        return 200, {"Id": self.images[name], "RepoTags": [], "Config": {}}

    def _create(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        container = {
            "Id": f"{len(self.rows):064x}",
            "Names": [f"/{query['name']}"],
            "Labels": body["Labels"],
            "State": "created",
            "Status": "Created",
            "ImageID": BUILT,
            "Created": int(time.time()),
        }
        self.rows.insert(0, container)
        return 201, {"Id": container["Id"], "Warnings": []}

    def _start(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        row = self._row(path)
        row |= {"State": "exited", "Status": "Exited (0) now", "at": _now()}
        return 204, None

    def _container(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        row = self._row(path)
        if path.endswith("/logs"):
            return 200, (frame(1, f"{row['at']} epoch 0\n".encode()),)
        at = row.get("at", "")
        state = {"Status": row["State"], "ExitCode": 0, "StartedAt": at, "FinishedAt": at}
        config = {"Labels": row["Labels"], "Tty": False}
        return 200, {"Id": row["Id"], "State": state, "Config": config}

    def _row(self, path: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["Id"] == path.split("/")[2])


def _transfer(begins: str, goes_on: str, ends: str) -> Iterator[dict[str, Any]]:
    yield {"status": "on the way"}
    for layer in LAYERS:
        yield {"id": layer, "status": begins}
    for tenth in range(1, 11):
        for layer in LAYERS:
            done = tenth * _LAYER_BYTES // 10
            detail = {"current": done, "total": _LAYER_BYTES}
            bar = f"[{'=' * tenth}>] {done / 1e6:.1f}MB/{_LAYER_BYTES / 1e6:.1f}MB"
            yield {"id": layer, "status": goes_on, "progressDetail": detail, "progress": bar}
    for layer in LAYERS:
        yield {"id": layer, "status": ends, "progressDetail": {}}


def _events(events: "Iterator[dict[str, Any]] | list[dict[str, Any]]") -> Iterator[bytes]:
    return (json.dumps(event).encode() + b"\r\n" for event in events)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
