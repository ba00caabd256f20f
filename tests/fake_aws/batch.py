"""AWS Batch: queues, definitions and jobs, whose containers run as processes of this machine."""

import asyncio
import copy
import re
import time
import uuid
from typing import Any

from .batch_jobs import MAIN_NODE, Job
from .logs import Logs
from .protocol import AwsFault, Params

ACCOUNT = "123456789012"
REGION = "eu-west-1"
MOST_DESCRIBED = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def refused(message: str) -> AwsFault:
    return AwsFault("ClientException", message)


class Batch:
    """The service ``batch``. There is a queue ``queue`` to begin with."""

    name = "batch"

    def __init__(self, services: dict[str, Any]) -> None:
        self.logs: Logs = services["logs"]
        self.definitions: dict[str, Params] = {}
        """By name and revision, as ``name:1``."""
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Params] = {}
        self.environments: dict[str, Params] = {}
        self.end_children_after_s = 2.0
        """How long after the main node the others are ended."""
        self.hold = False
        """Jobs stay RUNNABLE."""
        self.created_ago_s = 0.0
        """How long ago new jobs have been submitted."""
        self.second_s = 1.0
        """Length of a second of timeouts."""
        self.admin_queue({"name": "queue"})

    # -- what tests do ----------------------------------------------------------------------

    def admin_queue(self, body: Params) -> Params:
        """Makes a queue with a compute environment; ``queue`` and ``environment`` are more fields
        of theirs."""
        name = body["name"]
        environment = self._arn(f"compute-environment/{name}-environment")
        self.environments[environment] = {
            "computeEnvironmentName": f"{name}-environment",
            "computeEnvironmentArn": environment,
            "ecsClusterArn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/{name}",
            "type": "MANAGED",
            "state": "ENABLED",
            "status": "VALID",
            "computeResources": {"type": "EC2", "maxvCpus": 256, "subnets": ["subnet-1"]},
            **body.get("environment", {}),
        }
        self.queues[name] = {
            "jobQueueName": name,
            "jobQueueArn": self._arn(f"job-queue/{name}"),
            "state": "ENABLED",
            "status": "VALID",
            "priority": 1,
            "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": environment}],
            **body.get("queue", {}),
        }
        return {}

    def admin_settings(self, body: Params) -> Params:
        """``end_children_after_s``, ``hold``, ``created_ago_s``, ``second_s``."""
        for name, value in body.items():
            setattr(self, name, value)
        return {}

    def admin_jobs(self, body: Params) -> Params:
        """Puts ``count`` jobs that have ended into a queue: as ``name-<number>`` with ``tags``."""
        for i in range(body["count"]):
            job = self._new_job(
                {
                    "jobName": f"{body['name']}-{i}",
                    "jobQueue": body.get("queue", "queue"),
                    "jobDefinition": "loaded",
                    "tags": body.get("tags", {}),
                },
                {"jobDefinitionArn": "loaded", "type": "container", "containerProperties": {}},
            )
            job.created_ms += i
            job.status = body.get("status", "SUCCEEDED")
        return {}

    def admin_live(self, body: Params) -> list[str]:
        """Names of jobs that have not ended, and of active definitions without one that ended."""
        live = [job.name for job in self.jobs.values() if not job.over]
        names = {job.name for job in self.jobs.values()}
        active = [
            d["jobDefinitionName"] for d in self.definitions.values() if d["status"] == "ACTIVE"
        ]
        return [*live, *(f"definition {name}" for name in active if name not in names)]

    async def close(self) -> None:
        """Ends all jobs."""
        running = [job.end("the fake ends", grace_s=0.0) for job in self.jobs.values()]
        await asyncio.gather(*running)

    # -- definitions ------------------------------------------------------------------------

    def RegisterJobDefinition(self, params: Params) -> Params:
        name = params["jobDefinitionName"]
        if not _NAME.fullmatch(name):
            raise refused(f"Error executing request, Exception : {name} is not a valid name")
        check_definition(params)
        revision = 1 + sum(d["jobDefinitionName"] == name for d in self.definitions.values())
        arn = self._arn(f"job-definition/{name}:{revision}")
        self.definitions[f"{name}:{revision}"] = {
            **_without_empty(params),
            "jobDefinitionArn": arn,
            "revision": revision,
            "status": "ACTIVE",
            "containerOrchestrationType": "ECS",
        }
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": revision}

    def DeregisterJobDefinition(self, params: Params) -> Params:
        key = params["jobDefinition"].rpartition("/")[2]
        if key not in self.definitions:
            raise refused(f"Job definition {key} does not exist")
        self.definitions[key]["status"] = "INACTIVE"
        return {}

    def DescribeJobDefinitions(self, params: Params) -> Params:
        wanted = params.get("jobDefinitionName")
        status = params.get("status")
        found = [
            {k: v for k, v in definition.items() if k != "platformCapabilities"}
            for definition in self.definitions.values()
            if wanted in (None, definition["jobDefinitionName"])
            and status in (None, definition["status"])
        ]
        return {"jobDefinitions": found[::-1]}

    # -- jobs -------------------------------------------------------------------------------

    def SubmitJob(self, params: Params) -> Params:
        if not _NAME.fullmatch(params["jobName"]):
            raise refused(f"{params['jobName']} is not a valid job name")
        queue = self._queue(params["jobQueue"])
        if bool(queue.get("schedulingPolicyArn")) != bool(params.get("shareIdentifier")):
            raise refused("shareIdentifier goes with queues that have a scheduling policy")
        job = self._new_job(params, self._definition(params["jobDefinition"]))
        job.task = asyncio.ensure_future(job.run())
        return {"jobName": job.name, "jobId": job.id, "jobArn": job.arn}

    def _new_job(self, params: Params, definition: Params) -> Job:
        queue = self._queue(params["jobQueue"])
        job_id = str(uuid.uuid4())
        job = Job(
            service=self,
            id=job_id,
            arn=self._arn(f"job/{job_id}"),
            name=params["jobName"],
            queue=queue["jobQueueName"],
            queue_arn=queue["jobQueueArn"],
            definition=definition,
            tags=params.get("tags", {}),
            share_id=params.get("shareIdentifier"),
            created_ms=time.time_ns() // 1_000_000 - int(self.created_ago_s * 1000),
        )
        self.jobs[job_id] = job
        return job

    def _definition(self, given: str) -> Params:
        key = given.rpartition("/")[2]
        name, _, revision = key.partition(":")
        found = [
            d
            for d in self.definitions.values()
            if d["jobDefinitionName"] == name
            and d["status"] == "ACTIVE"
            and revision in ("", str(d["revision"]))
        ]
        if not found:
            raise refused(f"Error executing request, Exception : Job definition {key} not found")
        return found[-1]

    def _queue(self, given: str) -> Params:
        found = self.queues.get(given.rpartition("/")[2])
        if found is None:
            raise refused(f"Error executing request, Exception : {given} does not exist")
        return found

    def DescribeJobs(self, params: Params) -> Params:
        if len(params["jobs"]) > MOST_DESCRIBED:
            raise refused(f"jobs has {len(params['jobs'])} items, {MOST_DESCRIBED} are allowed")
        found = []
        for given in params["jobs"]:
            job_id, _, index = given.rpartition("/")[2].partition("#")
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if not index:
                found.append(job.record())
            elif int(index) < len(job.nodes) and job.nodes[int(index)].started:
                found.append(job.nodes[int(index)].record())
        return {"jobs": found}

    def ListJobs(self, params: Params) -> Params:
        queue = self._queue(params["jobQueue"])["jobQueueName"]
        jobs = [job for job in self.jobs.values() if job.queue == queue]
        filters = params.get("filters") or []
        if not filters:
            jobs = [job for job in jobs if job.status == params.get("jobStatus", "RUNNING")]
        for item in filters:
            jobs = [job for job in jobs if _passes(job, item)]
        jobs.sort(key=lambda job: -job.created_ms)
        at = int(params.get("nextToken", "0"))
        limit = min(params.get("maxResults", 100), 100)
        answer: Params = {"jobSummaryList": [job.summary() for job in jobs[at : at + limit]]}
        if at + limit < len(jobs):
            answer["nextToken"] = str(at + limit)
        return answer

    async def TerminateJob(self, params: Params) -> Params:
        job = self.jobs.get(params["jobId"].rpartition("/")[2])
        if job is None:
            raise refused(f"Job {params['jobId']} does not exist")
        if not job.over and not job.terminated:
            job.terminated = True
            job.status_reason = params["reason"]
            job.ending = asyncio.ensure_future(job.end(params["reason"], grace_s=1.0))
        return {}

    # -- queues -----------------------------------------------------------------------------

    def DescribeJobQueues(self, params: Params) -> Params:
        names = [given.rpartition("/")[2] for given in params.get("jobQueues") or self.queues]
        return {"jobQueues": [self.queues[name] for name in names if name in self.queues]}

    def DescribeComputeEnvironments(self, params: Params) -> Params:
        arns = params.get("computeEnvironments") or self.environments
        found = [self.environments[arn] for arn in arns if arn in self.environments]
        return {"computeEnvironments": found}

    def GetJobQueueSnapshot(self, params: Params) -> Params:
        queue = self._queue(params["jobQueue"])["jobQueueName"]
        jobs = [j for j in self.jobs.values() if j.queue == queue and j.status == "RUNNABLE"]
        front = [{"jobArn": job.arn, "earliestTimeAtPosition": job.created_ms} for job in jobs]
        return {"frontOfQueue": {"jobs": front, "lastUpdatedAt": time.time_ns() // 1_000_000}}

    def _arn(self, what: str) -> str:
        return f"arn:aws:batch:{REGION}:{ACCOUNT}:{what}"


def check_definition(params: Params) -> None:
    """What the service refuses although it fits its model."""
    if params["type"] == "multinode":
        properties = params["nodeProperties"]
        groups = properties["nodeRangeProperties"]
        if len(groups) > 5:
            raise refused("nodeRangeProperties has more than 5 items")
        ends = [tuple(map(int, group["targetNodes"].split(":"))) for group in groups]
        covered = [node for first, last in ends for node in range(first, last + 1)]
        if sorted(covered) != [*range(properties["numNodes"])]:
            raise refused(f"targetNodes do not cover {properties['numNodes']} nodes once: {ends}")
        if properties["mainNode"] != MAIN_NODE:
            raise refused("this fake has its main node first")
        containers = [group["container"] for group in groups]
        if len({container.get("instanceType") for container in containers}) > 1:
            raise refused("instanceType must be the same for all node groups")
    else:
        containers = [params["containerProperties"]]
        if "instanceType" in containers[0]:
            raise refused("instanceType is for multi-node parallel jobs only")
    if not 1 <= params.get("retryStrategy", {}).get("attempts", 1) <= 10:
        raise refused("attempts must be between 1 and 10")
    for container in containers:
        _check_container(container, params.get("platformCapabilities", ["EC2"]))


def _check_container(container: Params, platforms: list[str]) -> None:
    kinds = {r["type"] for r in container.get("resourceRequirements", ())}
    if not {"VCPU", "MEMORY"} <= kinds:
        raise refused("VCPU and MEMORY are required")
    for variable in container.get("environment", ()):
        if variable["name"].startswith("AWS_BATCH"):
            raise refused(f"environment variable {variable['name']} is reserved")
    if platforms == ["FARGATE"]:
        wrong = {"privileged", "linuxParameters", "ulimits"} & container.keys()
        if wrong:
            raise refused(f"{sorted(wrong)} are not for FARGATE")
        if "executionRoleArn" not in container:
            raise refused("executionRoleArn is required for FARGATE")


def _without_empty(params: Params) -> Params:
    """The definition as it is kept: without variables that are empty."""
    kept = copy.deepcopy(params)
    groups = kept.get("nodeProperties", {}).get("nodeRangeProperties", [])
    containers = [group["container"] for group in groups]
    if "containerProperties" in kept:
        containers.append(kept["containerProperties"])
    for container in containers:
        container["environment"] = [v for v in container.get("environment", ()) if v.get("value")]
    return kept


def _passes(job: Job, item: Params) -> bool:
    name, values = item["name"], item["values"]
    if name == "JOB_NAME":
        return any(
            job.name.lower().startswith(v[:-1].lower())
            if v.endswith("*")
            else job.name.lower() == v.lower()
            for v in values
        )
    if name == "AFTER_CREATED_AT":
        return job.created_ms > int(values[0])
    raise refused(f"the fake has no filter {name}")
