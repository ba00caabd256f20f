"""What pods mount: the node waits for it before it starts any container."""

from .kinds import CLAIMS, CONFIG_MAPS, SECRETS
from .store import Object, Store

_KINDS = {"configMap": (CONFIG_MAPS, "name"), "secret": (SECRETS, "secretName")}


def missing_mount(store: Store, pod: Object) -> str:
    """Why a volume that some container mounts cannot be had; empty if all can."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    mounted = {m["name"] for c in containers for m in c.get("volumeMounts") or ()}
    for volume in spec.get("volumes") or ():
        for source, (kind, key) in _KINDS.items():
            wanted = volume.get(source)
            if not wanted or wanted.get("optional") or volume["name"] not in mounted:
                continue
            if store.find(kind, namespace, wanted[key]) is None:
                why = f'{kind.plural[:-1]} "{wanted[key]}" not found'
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}'
    return ""


def missing_claim(store: Store, pod: Object) -> str:
    """Why the pod cannot be placed: a claim that there is not; empty for none."""
    for volume in pod["spec"].get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and store.find(CLAIMS, pod["metadata"]["namespace"], claim) is None:
            return f'persistentvolumeclaim "{claim}" not found'
    return ""
