"""Both generations of AppWrappers: MCAD's v1beta1 and the v1beta2 of today."""

from collections import Counter

from .api import Api
from .controllers import Controller, owner_of, phase
from .kinds import JOBS, PODS, Kind
from .statuses import ApiFailure
from .store import Object, Store


class AppWrapperController(Controller):
    """Makes what is wrapped, all at once, and counts its pods."""

    def __init__(self, store: Store, kind: Kind, api: Api) -> None:
        super().__init__(store, kind, (PODS, JOBS))
        self._api = api
        self._made: set[tuple[str, int, str]] = set()
        """What was made once, in which attempt: what somebody deletes is not made again."""

    def sync(self, wrapper: Object) -> None:
        spec, status = wrapper["spec"], wrapper.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return
        if spec.get("suspend"):
            self._write(wrapper, {"phase": "Suspended"})
            return
        retries = status.get("resettingCount", 0)
        pods = self._pods(wrapper)
        if status.get("phase") == "Resetting":
            if not pods:
                self._write(wrapper, {"phase": "Resuming", "resettingCount": retries})
            return
        error = self._create(wrapper, retries)
        pods = self._pods(wrapper)
        counts = Counter(phase(pod) for pod in pods)
        if self.kind.version == "v1beta1":
            self._write(wrapper, _v1beta1_status(counts, error))
        else:
            found = _v1beta2_status(counts, _expected(wrapper), error)
            if found["phase"] == "Failed" and retries < _retry_limit(wrapper):
                found, retries = {"phase": "Resetting"}, retries + 1
                for kind in (JOBS, PODS):
                    for obj in self.store.owned(wrapper["metadata"]["uid"], kind):
                        self._api.remove(kind, obj)
            self._write(wrapper, {**found, **({"resettingCount": retries} if retries else {})})

    def _pods(self, wrapper: Object) -> list[Object]:
        """Its own pods and those of its Jobs."""
        uid = wrapper["metadata"]["uid"]
        owners = [uid, *(job["metadata"]["uid"] for job in self.store.owned(uid, JOBS))]
        return [pod for owner in owners for pod in self.store.owned(owner, PODS)]

    def _write(self, wrapper: Object, status: Object) -> None:
        self.store.change(self.kind, wrapper, status=status)

    def _create(self, wrapper: Object, attempt: int) -> str:
        """Makes what is missing; what the server said if it refused."""
        for template in _templates(wrapper, self.kind.version):
            group, _, version = template["apiVersion"].rpartition("/")
            kind = next(
                k
                for k in self._api.kinds.values()
                if (k.group, k.version, k.name) == (group, version, template["kind"])
            )
            namespace = wrapper["metadata"]["namespace"]
            name = template["metadata"]["name"]
            made = (wrapper["metadata"]["uid"], attempt, f"{kind.plural}/{name}")
            if made in self._made or self.store.find(kind, namespace, name) is not None:
                continue
            self._made.add(made)
            metadata = {**template["metadata"], "namespace": namespace}
            metadata["ownerReferences"] = owner_of(self.kind, wrapper)
            obj = {**template, "metadata": metadata}
            if kind is PODS:
                obj["status"] = {"phase": "Pending"}
            try:
                self.store.create(kind, obj)
            except ApiFailure as err:
                return str(err)
        return ""


def _expected(wrapper: Object) -> int:
    """Number of pods."""
    templates = _templates(wrapper, "v1beta2")
    pods = sum(template["kind"] == PODS.name for template in templates)
    jobs = [template for template in templates if template["kind"] == JOBS.name]
    return pods + sum(job["spec"].get("completions", 1) for job in jobs)


def _retry_limit(wrapper: Object) -> int:
    annotations = wrapper["metadata"].get("annotations") or {}
    return int(annotations.get("workload.codeflare.dev.appwrapper/retryLimit", 3))


def _templates(wrapper: Object, version: str) -> list[Object]:
    spec = wrapper["spec"]
    if version == "v1beta1":
        items = (spec.get("resources") or {}).get("GenericItems") or ()
        return [item["generictemplate"] for item in items]
    return [component["template"] for component in spec.get("components") or ()]


def _v1beta1_status(counts: "Counter[str]", error: str) -> Object:
    words = {
        "running": "Running",
        "pending": "Pending",
        "failed": "Failed",
        "Succeeded": "Succeeded",
    }
    status: Object = {word: counts[name] for word, name in words.items() if counts[name]}
    alive = counts["Running"] + counts["Pending"]
    if error or (counts["Failed"] and not alive):
        return {**status, "state": "Failed"}
    ended = counts["Succeeded"] and not alive
    return {**status, "state": "Completed" if ended else "Running" if counts else "Pending"}


def _v1beta2_status(counts: "Counter[str]", total: int, error: str) -> Object:
    if error or counts["Failed"]:
        return {"phase": "Failed"}
    if total and counts["Succeeded"] == total:
        return {"phase": "Succeeded"}
    return {"phase": "Running" if counts["Running"] or counts["Succeeded"] else "Resuming"}
