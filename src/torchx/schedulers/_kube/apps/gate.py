"""What keeps the pods of several Jobs from running before all objects of their app are there.

Each of the Jobs is let go by a request of its own, and a launcher can be killed between any two. So
their pods mount a ConfigMap, which is made last: by this one request all of them start. Pure.
"""

from collections.abc import Mapping
from typing import Any

GATE_VOLUME = "torchx-start"
GATE_PATH = "/var/run/torchx/start"


def hold_pods(pod: dict[str, Any], container: str, gate: str) -> None:
    """Lets the containers of a pod wait until the ConfigMap is there, as the node's agent does.

    Args:
        container: one that mounts it; what no container mounts is not waited for.
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
    """The ConfigMap, which holds nothing: that it is there is all it says."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
    }
