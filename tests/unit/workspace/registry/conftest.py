"""A fake registry and a workspace."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from urllib3 import Retry

from .fake_registry import FakeRegistry

AT_ONCE = Retry(4)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    stop = fake.serve()
    yield fake
    stop()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "pkg/empty").mkdir(parents=True)
    (root / "main.py").write_text("print('hello')\n")
    (root / "main.py").chmod(0o755)
    (root / "pkg/data.txt").write_text("1")
    (root / "pkg/link").symlink_to("../main.py")
    (root / "pkg").chmod(0o750)
    return root


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "docker-config"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder / "config.json"


@pytest.fixture
def docker_login(docker_config: Path) -> Callable[[str, str, str], None]:
    """Leaves what `docker login` would."""

    def log_in(host: str, user: str, password: str) -> None:
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        docker_config.write_text(json.dumps({"auths": {host: {"auth": auth}}}))

    return log_in
