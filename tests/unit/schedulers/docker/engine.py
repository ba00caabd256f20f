"""What a daemon keeps of containers, volumes and networks, behind a fake daemon."""

import json
import re

from tests.unit.schedulers.docker.fake_daemon import frame, row, stamp


class Engine:
    """Containers of one app in given states: ``running``, ``created`` or an exit code."""

    def __init__(self, *states: object, labels: dict[str, str] | None = None):
        self.rows = []
        for k, state in enumerate(states):
            ended = isinstance(state, int)
            text = f"Exited ({state}) 1 second ago" if ended else ""
            one = row("exited" if ended else str(state), text, k)
            one["Labels"].update(labels or {})
            self.rows.append(one)
        self.volumes: dict[str, dict[str, object]] = {}
        self.networks = [
            {"Name": "torchx", "Id": "n", "Labels": {"torchx.pytorch.org/version": "1"}}
        ]
        self.records: dict[str, dict[str, object]] = {}
        """More of what is recorded of a container, by its id."""
        self.ended_before: set[str] = set()
        """Containers that have ended when they are asked to."""
        self.refusing: set[str] = set()

    def routes(self):
        return {
            ("GET", "/containers/json"): lambda *_: (200, self.rows),
            ("GET", "/images"): (200, {"Id": "sha256:1", "RepoTags": ["i:3"]}),
            ("GET", "/containers/"): self._of_container,
            ("POST", "/containers/"): self._of_container,
            ("DELETE", "/containers/"): self._remove,
            ("GET", "/volumes"): lambda *_: (200, {"Volumes": [*self.volumes.values()]}),
            ("POST", "/volumes/create"): self._make_volume,
            ("DELETE", "/volumes/"): self._remove_volume,
            ("GET", "/networks"): lambda *_: (200, self.networks),
            ("DELETE", "/networks/"): self._remove_network,
        }

    def _row(self, path):
        container_id = path.split("/")[2]
        return next((found for found in self.rows if found["Id"] == container_id), None)

    def _of_container(self, path, query, body):
        found = self._row(path)
        if found is None:
            return 404, {"message": "no such container"}
        verb = path.rpartition("/")[2]
        if verb == "stop":
            return self._stop(found)
        if verb == "wait":
            return 200, {"StatusCode": 143}
        if verb == "logs":
            return 200, (frame(1, stamp(1) + b" hello\n"),)
        code = re.search(r"\((\d+)\)", found["Status"])
        state = {"Status": found["State"], "ExitCode": int(code[1]) if code else 0}
        return 200, {"Id": found["Id"], "State": state, **self.records.get(found["Id"], {})}

    def _stop(self, found):
        if found["Id"] in self.refusing:
            return 500, {"message": "cannot be killed"}
        if found["State"] != "running":
            return 304, b""
        code = 3 if found["Id"] in self.ended_before else 143
        found.update(State="exited", Status=f"Exited ({code}) now")
        return (304 if code == 3 else 204), b""

    def _remove(self, path, query, body):
        found = self._row(path)
        self.rows.remove(found)
        return 204, None

    def _make_volume(self, path, query, body):
        return 201, self.volumes.setdefault(body["Name"], json.loads(json.dumps(body)))

    def _remove_volume(self, path, query, body):
        return (204 if self.volumes.pop(path.rpartition("/")[2], None) else 404), {"message": "no"}

    def _remove_network(self, path, query, body):
        self.networks = [n for n in self.networks if n["Id"] != path.rpartition("/")[2]]
        return 204, None
