"""One node: binds pods, runs their containers as local processes, keeps their logs."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import processes
from .events import Recorder
from .kinds import CONFIG_MAPS, NODES, PODS, SECRETS
from .mounts import missing_claim, missing_mount
from .pod_env import command_line, environment
from .pod_logs import GeneratedLog, Log
from .rules import amount
from .store import Change, Object, Store, now

BEHAVIOUR = "fake-kube/behaviour"
"""Annotation of a pod: JSON with ``log_lines``, ``exit_code``, ``run_s``, ``chunk_lines``; no
process is started then."""
LOG_CLOCK = "fake-kube/log-clock-ns"
"""Annotation of a pod: resolution of the times of its log."""
MISSING_IMAGES = ("no-such-image", "does-not-exist")
NODE = "fake-node-1"
_GRACE_S = 30.0
_MOUNT_AGAIN_S = 0.1
_INSTALLED = ("default-scheduler", "volcano", "torchx-gang")

Key = tuple[str, str]


@dataclass
class Instance:
    """One run of a container."""

    log: Log
    started: str = ""
    finished: str = ""
    exit_code: int | None = None
    reason: str = ""
    process: asyncio.subprocess.Process | None = None
    oom_killed: bool = False


@dataclass
class Running:
    """A pod that this node has."""

    uid: str
    task: "asyncio.Task[None] | None" = None
    instances: dict[str, list[Instance]] = field(default_factory=dict)
    waiting: dict[str, tuple[str, str]] = field(default_factory=dict)
    ending: bool = False


class Kubelet:
    """Runs what the store has; tells the store how it goes.

    Args:
        capacity: what the node has; a pod that asks for more stays pending.
        remove: takes a pod out of the store.
    """

    def __init__(
        self, store: Store, capacity: Mapping[str, str], remove: Callable[[Object], None]
    ) -> None:
        self.store = store
        self.capacity = dict(capacity)
        self._other_capacity = asyncio.Event()
        self.running: dict[Key, Running] = {}
        self._remove = remove
        self._tasks: set[asyncio.Task[None]] = set()
        self._record = Recorder(store).record
        self._folder = tempfile.TemporaryDirectory(prefix="fake-kube-")
        labels = {"kubernetes.io/hostname": NODE, "node.kubernetes.io/instance-type": "fake"}
        status = {"capacity": self.capacity, "allocatable": self.capacity}
        store.create(NODES, {"metadata": {"name": NODE, "labels": labels}, "status": status})
        store.listeners.append(self._changed)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _changed(self, change: Change) -> None:
        if change.kind is not PODS:
            return
        key = _key(change.obj)
        if change.type == "ADDED":
            self.running[key] = Running(change.obj["metadata"]["uid"])
            self.running[key].task = self._spawn(self._run(key, change.obj))
        elif change.type == "DELETED":
            self.running.pop(key, None)
        elif "deletionTimestamp" in change.obj["metadata"] and change.before:
            if "deletionTimestamp" not in change.before["metadata"]:
                self._spawn(self._end(key, change.obj))

    def set_capacity(self, changes: Mapping[str, str]) -> None:
        """The node has so much of something from now on; what is pending is looked at anew."""
        self.capacity |= changes
        self._other_capacity.set()
        self._other_capacity = asyncio.Event()

    def owns(self, pod: Object) -> bool:
        """Whether its processes must end before it may go."""
        running = self.running.get(_key(pod))
        return bool(running and running.task and not running.task.done())

    async def close(self) -> None:
        """Kills all that runs."""
        for running in self.running.values():
            _kill(running, signal.SIGKILL)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    async def _run(self, key: Key, pod: Object) -> None:
        """The life of a pod."""
        running = self.running[key]
        spec = pod["spec"]
        while reason := missing_claim(self.store, pod) or self._unschedulable(spec):
            self._condition(key, running, "False", "Unschedulable", reason)
            self._record(pod, "Warning", "FailedScheduling", reason)
            await self._other_capacity.wait()
        if (
            spec.get("schedulingGates")
            or spec.get("schedulerName", _INSTALLED[0]) not in _INSTALLED
        ):
            return
        self._bind(key, running)
        await self._mount(pod)
        for container in spec.get("initContainers") or ():
            code = await self._container(key, running, container)
            if code != 0:
                self._report(key, running)
                return
        runs = [self._container(key, running, c) for c in spec["containers"]]
        await asyncio.gather(*runs)
        self._report(key, running)

    async def _mount(self, pod: Object) -> None:
        """Waits until all is there that the containers mount."""
        while reason := missing_mount(self.store, pod):
            self._record(pod, "Warning", "FailedMount", reason)
            await asyncio.sleep(_MOUNT_AGAIN_S)

    def _unschedulable(self, spec: Object) -> str:
        for container in spec["containers"]:
            asked = (container.get("resources") or {}).get("requests") or {}
            limits = (container.get("resources") or {}).get("limits") or {}
            for name, value in {**limits, **asked}.items():
                if amount(value) > amount(self.capacity.get(name, "0")):
                    return f"0/1 nodes are available: 1 Insufficient {name}."
        node = self.store.get(NODES, "", NODE)
        for label, value in (spec.get("nodeSelector") or {}).items():
            if node["metadata"]["labels"].get(label) != value:
                selector = "didn't match Pod's node affinity/selector"
                return f"0/1 nodes are available: 1 node(s) {selector}."
        return ""

    def _bind(self, key: Key, running: Running) -> None:
        pod = self.store.get(PODS, *key)
        pod = self.store.change(PODS, pod, spec={**pod["spec"], "nodeName": NODE})
        self._record(pod, "Normal", "Scheduled", f"Successfully assigned {'/'.join(key)} to {NODE}")
        self._condition(key, running, "True", "", "")

    def _condition(self, key: Key, running: Running, value: str, reason: str, message: str) -> None:
        pod = self.store.get(PODS, *key)
        condition = {"type": "PodScheduled", "status": value, "lastTransitionTime": now()}
        if reason:
            condition |= {"reason": reason, "message": message}
        self.store.change(PODS, pod, status={**pod["status"], "conditions": [condition]})

    async def _container(self, key: Key, running: Running, container: Object) -> int:
        """Runs a container as often as its policy says; the last exit code."""
        pod = self.store.get(PODS, *key)
        name, image = container["name"], container["image"]
        if any(word in image for word in MISSING_IMAGES):
            await self._missing_image(key, running, name, image)
        restart = pod["spec"].get("restartPolicy", "Always")
        while True:
            instance = Instance(_log(pod, name), started=now())
            running.instances.setdefault(name, []).append(instance)
            self._report(key, running)
            await self._process(key, running, container, instance)
            code = instance.exit_code or 0
            if running.ending or restart == "Never" or (restart == "OnFailure" and code == 0):
                return code
            message = f"Back-off restarting failed container {name}"
            self._record(pod, "Warning", "BackOff", message)
            await asyncio.sleep(0.05)

    async def _missing_image(self, key: Key, running: Running, name: str, image: str) -> None:
        pod = self.store.get(PODS, *key)
        failed = f'Failed to pull image "{image}": not found'
        self._record(pod, "Warning", "Failed", failed)
        running.waiting[name] = ("ErrImagePull", failed)
        self._report(key, running)
        await asyncio.sleep(0.1)
        back_off = f'Back-off pulling image "{image}"'
        self._record(pod, "Normal", "BackOff", back_off)
        running.waiting[name] = ("ImagePullBackOff", back_off)
        self._report(key, running)
        await asyncio.sleep(3600)

    async def _process(
        self, key: Key, running: Running, container: Object, instance: Instance
    ) -> None:
        pod = self.store.get(PODS, *key)
        behaviour = _behaviour(pod)
        try:
            if behaviour is not None:
                self._report(key, running)
                await asyncio.sleep(behaviour.get("run_s", 0))
                instance.exit_code = behaviour.get("exit_code", 0)
            else:
                await self._local_process(key, running, container, instance)
        finally:
            instance.log.end()
        instance.finished = now()
        instance.reason = "Completed" if instance.exit_code == 0 else "Error"
        if instance.oom_killed:
            instance.reason, instance.exit_code = "OOMKilled", 137
        self._report(key, running)

    async def _local_process(
        self, key: Key, running: Running, container: Object, instance: Instance
    ) -> None:
        pod = self.store.get(PODS, *key)
        env = environment(container, pod, self._sources(key[0]))
        words = command_line(container, env)
        base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        base |= {k: v for k, v in os.environ.items() if k == "TEST_RUN_ID"}
        base["HOSTNAME"] = pod["spec"].get("hostname") or key[1]
        read, write = os.pipe()
        try:
            folder = container.get("workingDir") or self._folder.name
            process = await processes.start(words, {**base, **env}, folder, write)
        except (OSError, ValueError, IndexError) as err:
            os.close(read)
            instance.log.write(f"exec: {err}\n".encode())
            instance.exit_code = 128
            return
        finally:
            os.close(write)
        instance.process = process
        if running.ending:
            processes.send_signal(process, signal.SIGKILL)
        self._report(key, running)
        await processes.copy_output(read, instance.log)
        code = await process.wait()
        instance.exit_code = code if code >= 0 else 128 - code

    def _sources(self, namespace: str) -> dict[tuple[str, str], Object]:
        return {
            (kind.name, obj["metadata"]["name"]): obj
            for kind in (SECRETS, CONFIG_MAPS)
            for obj in self.store.all(kind, namespace)
        }

    async def _end(self, key: Key, pod: Object) -> None:
        """Ends the processes of a pod that is being deleted, then removes it."""
        running = self.running.get(key)
        if running and running.uid == pod["metadata"]["uid"]:
            running.ending = True
            _kill(running, signal.SIGTERM)
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S)
            alive = [i.process for r in running.instances.values() for i in r if i.process]
            waits = [asyncio.ensure_future(process.wait()) for process in alive]
            if waits:
                await asyncio.wait(waits, timeout=grace_s)
            _kill(running, signal.SIGKILL)
            if running.task and not waits:
                running.task.cancel()
            if running.task:
                await asyncio.wait([running.task], timeout=1)
        current = self.store.find(PODS, *key)
        if current and current["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._remove(current)

    def kill_all(self) -> None:
        """Ends all containers at once."""
        for running in self.running.values():
            _kill(running, signal.SIGKILL)

    def kill(self, key: Key, reason: str) -> None:
        """A test's hook: ends all containers, as by the kernel if the reason is ``OOMKilled``."""
        running = self.running[key]
        for instances in running.instances.values():
            instances[-1].oom_killed = reason == "OOMKilled"
        _kill(running, signal.SIGKILL)

    def _report(self, key: Key, running: Running) -> None:
        """Writes the pod's status into the store."""
        pod = self.store.find(PODS, *key)
        if pod is None or pod["metadata"]["uid"] != running.uid:
            return
        spec = pod["spec"]
        inits = [self._status(running, c) for c in spec.get("initContainers") or ()]
        mains = [self._status(running, c) for c in spec["containers"]]
        phase = _phase(inits, mains, spec.get("restartPolicy", "Always"))
        ready = "True" if phase == "Running" else "False"
        kept = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
        status = {
            **pod["status"],
            "phase": phase,
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": pod["status"].get("startTime") or now(),
            "conditions": [*kept, {"type": "Ready", "status": ready}],
            "containerStatuses": mains,
        }
        if inits:
            status["initContainerStatuses"] = inits
        self.store.change(PODS, pod, status=status)

    def _status(self, running: Running, container: Object) -> Object:
        name = container["name"]
        instances = running.instances.get(name, [])
        state, last = _state(instances[-1]) if instances else None, {}
        if state is None:
            reason, message = running.waiting.get(name, ("ContainerCreating", ""))
            state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        if len(instances) > 1:
            last = _state(instances[-2])
        return {
            "name": name,
            "image": container["image"],
            "restartCount": max(len(instances) - 1, 0),
            "ready": "running" in state,
            "started": "running" in state,
            "state": state,
            "lastState": last,
        }


def _key(pod: Object) -> Key:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _behaviour(pod: Object) -> dict[str, Any] | None:
    text = (pod["metadata"].get("annotations") or {}).get(BEHAVIOUR)
    return json.loads(text) if text else None


def _log(pod: Object, container: str) -> Log:
    behaviour = _behaviour(pod)
    if behaviour and behaviour.get("log_lines"):
        return GeneratedLog(behaviour["log_lines"])
    annotations = pod["metadata"].get("annotations") or {}
    return Log(int(annotations.get(LOG_CLOCK, 1)))


def _kill(running: Running, number: int) -> None:
    for instances in running.instances.values():
        for instance in instances:
            if instance.process:
                processes.send_signal(instance.process, number)


def _state(instance: Instance) -> Object:
    if instance.exit_code is None or not instance.finished:
        return {"running": {"startedAt": instance.started}}
    ended = {
        "exitCode": instance.exit_code,
        "reason": instance.reason,
        "startedAt": instance.started,
        "finishedAt": instance.finished,
    }
    return {"terminated": ended}


def _phase(inits: list[Object], mains: list[Object], policy: str) -> str:
    def code(status: Object) -> int | None:
        ended = status["state"].get("terminated")
        return ended["exitCode"] if ended else None

    if policy == "Never" and any(code(s) not in (None, 0) for s in inits):
        return "Failed"
    codes = [code(status) for status in mains]
    if all(c is not None for c in codes) and policy != "Always":
        if all(c == 0 for c in codes):
            return "Succeeded"
        return "Failed" if policy == "Never" else "Running"
    started = any("running" in s["state"] or "terminated" in s["state"] for s in mains)
    return "Running" if started else "Pending"
