"""The controller of Volcano's Jobs: https://volcano.sh/en/docs/vcjob/."""

from collections import Counter
from collections.abc import Callable

from .controllers import Controller, owner_of, phase, pod_of, pods_of, with_env
from .kinds import PODS, SERVICES, VOLCANO_COMMANDS, VOLCANO_JOBS
from .store import Change, Object, Store, now

_ENDED = ("Completed", "Failed", "Aborted", "Terminated")
_ENDING = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}
_ACTIONS = {"AbortJob": "Aborting", "TerminateJob": "Terminating", "CompleteJob": "Completing"}


class VolcanoController(Controller):
    """Makes the pods of Jobs and follows their policies and commands."""

    def __init__(self, store: Store, remove: Callable[..., None]) -> None:
        super().__init__(store, VOLCANO_JOBS, (PODS,))
        self._remove = remove
        self._handled: set[str] = set()
        store.listeners.append(self._command)

    def _command(self, change: Change) -> None:
        """A Command says what is to become of a Job, and goes."""
        if change.kind is not VOLCANO_COMMANDS or change.type != "ADDED":
            return
        namespace = change.obj["metadata"]["namespace"]
        target = change.obj["target"]["name"]
        job = self.store.find(VOLCANO_JOBS, namespace, target)
        if job is not None:
            self._act(job, change.obj["action"], "by a command")
        self._remove(VOLCANO_COMMANDS, change.obj)

    def sync(self, job: Object) -> None:
        state = (job.get("status") or {}).get("state", {}).get("phase", "Pending")
        pods = pods_of(self.store, job)
        if state in _ENDED or state in _ENDING:
            alive = [pod for pod in pods if phase(pod) not in ("Succeeded", "Failed")]
            for pod in alive:
                self._remove(PODS, pod)
            if state in _ENDING and not alive:
                self._write(job, _ENDING[state])
            return
        if state == "Restarting":
            for pod in pods:
                self._remove(PODS, pod)
            if not pods:
                self._write(job, "Pending")
            return
        self._service(job)
        self._fill(job, {pod["metadata"]["name"] for pod in pods})
        if not self._follow_policies(job, pods):
            self._write(job, self._phase(job))

    def _phase(self, job: Object) -> str:
        pods = pods_of(self.store, job)
        total = sum(task.get("replicas", 1) for task in job["spec"]["tasks"])
        counts = Counter(phase(p) for p in pods if "deletionTimestamp" not in p["metadata"])
        least = _min_available(job)
        if counts["Succeeded"] + counts["Failed"] == total:
            return "Completed" if counts["Succeeded"] >= least else "Failed"
        started = counts["Running"] + counts["Succeeded"] + counts["Failed"]
        return "Running" if started >= least else "Pending"

    def _follow_policies(self, job: Object, pods: list[Object]) -> bool:
        """Does what the first policy says of a pod that failed."""
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if phase(pod) != "Failed" or uid in self._handled:
                continue
            self._handled.add(uid)
            task = pod["metadata"]["annotations"]["volcano.sh/task-spec"]
            policies = next(t for t in job["spec"]["tasks"] if t["name"] == task).get("policies")
            for policy in (*(policies or ()), *(job["spec"].get("policies") or ())):
                events = {policy.get("event"), *(policy.get("events") or ())}
                if events & {"PodFailed", "*"}:
                    name = pod["metadata"]["name"]
                    return self._act(job, policy["action"], f"pod {name} failed", pod)
        return False

    def _act(self, job: Object, action: str, why: str, pod: Object | None = None) -> bool:
        retries = (job.get("status") or {}).get("retryCount", 0) + 1
        if action in ("RestartJob", "RestartTask", "RestartPod"):
            last = retries >= (job["spec"].get("maxRetry") or 3)  # 0 is replaced at its creation
            if action == "RestartJob":
                self._write(job, "Failed" if last else "Restarting", why, retries)
            elif pod is not None:
                self._write(job, "Failed" if last else "Running", why, retries)
                self._remove(PODS, pod)
            return True
        if action in _ACTIONS:
            self._write(job, _ACTIONS[action], why)
            return True
        return False

    def _fill(self, job: Object, there: set[str]) -> None:
        name = job["metadata"]["name"]
        env = _svc_env(job) if "svc" in (job["spec"].get("plugins") or {}) else []
        for task in job["spec"]["tasks"]:
            for index in range(task.get("replicas", 1)):
                pod_name = f"{name}-{task['name']}-{index}"
                if pod_name not in there:
                    self._pod(job, task, index, pod_name, env)

    def _pod(
        self, job: Object, task: Object, index: int, pod_name: str, svc_env: list[Object]
    ) -> None:
        name = job["metadata"]["name"]
        env = [*svc_env]
        if "env" in (job["spec"].get("plugins") or {}):
            env += [{"name": f"{p}_TASK_INDEX", "value": str(index)} for p in ("VK", "VC")]
        marks = {
            "volcano.sh/job-name": name,
            "volcano.sh/task-spec": task["name"],
            "volcano.sh/task-index": str(index),
        }
        retries = (job.get("status") or {}).get("retryCount", 0)
        labels = {**marks, "volcano.sh/job-namespace": job["metadata"]["namespace"]}
        annotations = {**marks, "volcano.sh/job-retry-count": str(retries)}

        def adapt(spec: Object) -> Object:
            names = {"hostname": pod_name, "subdomain": name}
            scheduler = job["spec"].get("schedulerName", "volcano")
            return {**names, **with_env(spec, env), "schedulerName": scheduler}

        template = task["template"]
        pod = pod_of(VOLCANO_JOBS, job, template, pod_name, labels, annotations, adapt)
        self.store.create(PODS, pod)

    def _service(self, job: Object) -> None:
        metadata = job["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        if "svc" not in (job["spec"].get("plugins") or {}):
            return
        if self.store.find(SERVICES, namespace, name) is None:
            owners = owner_of(VOLCANO_JOBS, job)
            spec = {"clusterIP": "None", "selector": {"volcano.sh/job-name": name}}
            meta = {"name": name, "namespace": namespace, "ownerReferences": owners}
            self.store.create(SERVICES, {"metadata": meta, "spec": spec})

    def _write(self, job: Object, state: str, why: str = "", retries: int | None = None) -> None:
        metadata = job["metadata"]
        job = self.store.get(VOLCANO_JOBS, metadata["namespace"], metadata["name"])
        status = dict(job.get("status") or {})
        tasks: dict[str, Counter[str]] = {}
        for pod in pods_of(self.store, job):
            task = pod["metadata"]["annotations"]["volcano.sh/task-spec"]
            tasks.setdefault(task, Counter())[phase(pod)] += 1
        total = sum(tasks.values(), Counter[str]())
        if status.get("state", {}).get("phase") != state:
            status["state"] = {"phase": state, "lastTransitionTime": now()}
            if why:
                status["state"]["message"] = why
        if retries is not None:
            status["retryCount"] = retries
        status["minAvailable"] = _min_available(job)
        status["taskStatusCount"] = {name: {"phase": dict(n)} for name, n in tasks.items()}
        status |= {
            word.lower(): total[word] for word in ("Pending", "Running", "Succeeded", "Failed")
        }
        self.store.change(VOLCANO_JOBS, job, status=status)


def _min_available(job: Object) -> int:
    spec = job["spec"]
    if spec.get("minAvailable") is not None:
        return int(spec["minAvailable"])
    return sum(
        task["minAvailable"] if task.get("minAvailable") is not None else task.get("replicas", 1)
        for task in spec["tasks"]
    )


def _svc_env(job: Object) -> list[Object]:
    """Hosts and number of each task, which come after the template's own variables."""
    name = job["metadata"]["name"]
    env = []
    for task in job["spec"]["tasks"]:
        word = task["name"].upper().replace("-", "_")
        count = task.get("replicas", 1)
        hosts = ",".join(f"{name}-{task['name']}-{i}.{name}" for i in range(count))
        env.append({"name": f"VC_{word}_HOSTS", "value": hosts})
        env.append({"name": f"VC_{word}_NUM", "value": str(count)})
    return env
