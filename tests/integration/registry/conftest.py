"""A real registry on this machine, and the Docker daemon that pulls from it."""

import gzip
import http.client
import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.workspace.registry.fake_registry import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
    digest_of,
    tar_of,
)
from torchx._docker import connect as connect_docker
from torchx.errors import BackendUnavailable
from torchx.workspace._registry._blobs import BytesBlob
from torchx.workspace._registry._client import Manifest, Registry
from torchx.workspace._registry._reference import parse_repository

HOST = f"localhost:{os.environ.get('TORCHX_TEST_REGISTRY_PORT', '5000')}"


def _no_registry() -> str:
    connection = http.client.HTTPConnection(HOST, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return "" if connection.getresponse().status == 200 else "it does not answer as a registry"
    except OSError as err:
        return str(err)
    finally:
        connection.close()


@pytest.fixture(scope="session")
def host() -> str:
    """Host of a real registry."""
    missing = _no_registry()
    if missing:
        pytest.skip(
            f"no registry on {HOST} ({missing}); start one: scripts/engines/docker registry"
        )
    return HOST


@pytest.fixture
def repository(host: str) -> str:
    """A repository that no other test uses."""
    return f"{host}/torchx-test/{uuid.uuid4().hex}"


@pytest.fixture
def docker_client(host: str) -> Iterator[Any]:
    try:
        client = connect_docker()
    except (ModuleNotFoundError, BackendUnavailable) as err:
        pytest.skip(f"{err}; start one: scripts/engines/docker up")
    yield client
    client.close()


def push_image(
    repository: str,
    *layers: dict[str, Any],
    settings: dict[str, Any] | None = None,
    oci: bool = False,
) -> str:
    """Puts an image of such files into a registry; gives its name."""
    raw = [tar_of(layer) for layer in layers]
    packed = [gzip.compress(r, mtime=0) for r in raw]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/none"], **(settings or {})},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(r) for r in raw]},
            "history": [{"created_by": f"layer {n}"} for n in range(len(raw))],
        }
    ).encode()
    media_type = OCI_MANIFEST if oci else DOCKER_MANIFEST
    manifest = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": {
            "mediaType": OCI_CONFIG if oci else DOCKER_CONFIG,
            "digest": digest_of(config),
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": OCI_LAYER + "+gzip" if oci else DOCKER_LAYER,
                "digest": digest_of(p),
                "size": len(p),
            }
            for p in packed
        ],
    }
    with Registry(parse_repository(repository), push=True) as registry:
        for blob in (config, *packed):
            registry.upload(BytesBlob(blob))
        registry.put_manifest("base", Manifest(media_type, json.dumps(manifest).encode()))
    return f"{repository}:base"
