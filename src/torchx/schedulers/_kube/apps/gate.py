"""Holds the pods of several Jobs until all objects of their app are created.

Each Job is released by its own request, and a launcher can be killed between any two. Their pods
therefore mount a ConfigMap, which is created last: this one request starts all of them. Pure.
"""

from collections.abc import Mapping
from typing import Any

GATE_VOLUME = "torchx-start"
GATE_PATH = "/var/run/torchx/start"


def hold_pods(pod: dict[str, Any], container: str, gate: str) -> None:
    """Makes the node's agent hold the containers of a pod until the ConfigMap exists.

    Args:
        container: the one that mounts it; volumes that no container mounts are not waited for.
    """
    spec = pod["spec"]
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": GATE_VOLUME, "configMap": {"name": gate}},
    ]
    mount = {"name": GATE_VOLUME, "mountPath": GATE_PATH, "readOnly": True}
    named = [c for c in spec["containers"] if c.get("name") == container]
    for main in named or spec["containers"][:1]:
        main["volumeMounts"] = [*(main.get("volumeMounts") or ()), mount]


def build_gate(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Returns the ConfigMap, which is empty: only its existence matters."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
    }
