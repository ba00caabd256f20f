"""Distributed PyTorch jobs, started by torchrun on every node.

``ddp`` and ``torchrun`` differ in what a plain number for ``-j`` means when ``-h`` is given:
``ddp`` takes it as processes on one node, ``torchrun`` as nodes with one process for each GPU.
"""

import os
import shlex
from pathlib import Path

import torchx.specs as specs
from torchx import IMAGE
from torchx.components.structured_arg import StructuredJArgument, StructuredNameArgument
from torchx.errors import InvalidInput
from torchx.settings import ENV_TORCHX_TRACKING_EXPERIMENT_NAME, ENV_TORCHX_TRACKING_RUN_NAME
from torchx.specs import macros

_TORCH_DEBUG_FLAGS: dict[str, str] = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}
"""Environment variables that make PyTorch log more; clients import this."""


class _noquote(str):
    """Text that goes to the shell as it is (NeMo-Run imports this)."""


def ddp(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 29500,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
) -> specs.AppDef:
    """Distributed data parallel job: the same program in several processes on several nodes.

    Args:
        script_args: arguments of the script or module
        script: program to run, a path inside the image
        m: python module to run, instead of a script
        image: image that holds the program
        name: name of the job as `experiment/run`; what is left out is derived
        h: named resource of each node; wins over cpu, gpu and memMB
        cpu: cpus of each node
        gpu: gpus of each node
        memMB: memory of each node, in MB
        j: size as `[[min_nodes:]nodes x]processes_per_node`, 2x8 for example
        env: environment variables, as `K1=V1,K2=V2`
        metadata: metadata of the app, as `K1=V1,K2=V2`
        max_retries: how often to start again before giving up
        rdzv_port: port of the rendezvous on the first node, for more than one node
        rdzv_backend: rendezvous backend
        rdzv_conf: further options of the rendezvous, as `k1=v1,k2=v2`
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
        debug: set the environment variables that make PyTorch log more
        tee: which streams of the processes to show and keep: 0 none, 1 stdout, 2 stderr, 3 both
    """
    return _torchrun_app(
        script_args, script, m, image, name, h, cpu, gpu, memMB, parse_nnodes(j), env, metadata,
        max_retries, rdzv_port, rdzv_backend, rdzv_conf, mounts, debug, tee,
    )  # fmt: skip


def torchrun(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 29500,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
) -> specs.AppDef:
    """Program started by torchrun on every node.

    Args:
        script_args: arguments of the script or module
        script: program to run, a path inside the image
        m: python module to run, instead of a script
        image: image that holds the program
        name: name of the job as `experiment/run`; what is left out is derived
        h: named resource of each node; wins over cpu, gpu and memMB
        cpu: cpus of each node
        gpu: gpus of each node
        memMB: memory of each node, in MB
        j: size as `[[min_nodes:]nodes x]processes_per_node`; with -h, a plain number is nodes
        env: environment variables, as `K1=V1,K2=V2`
        metadata: metadata of the app, as `K1=V1,K2=V2`
        max_retries: how often to start again before giving up
        rdzv_port: port of the rendezvous on the first node, for more than one node
        rdzv_backend: rendezvous backend
        rdzv_conf: further options of the rendezvous, as `k1=v1,k2=v2`
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
        debug: set the environment variables that make PyTorch log more
        tee: which streams of the processes to show and keep: 0 none, 1 stdout, 2 stderr, 3 both
    """
    if h and j.isdecimal():
        j = str(StructuredJArgument.parse_from(h, j))
    return _torchrun_app(
        script_args, script, m, image, name, h, cpu, gpu, memMB, parse_nnodes(j), env, metadata,
        max_retries, rdzv_port, rdzv_backend, rdzv_conf, mounts, debug, tee,
    )  # fmt: skip


def spmd(
    *args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str = "gpu.small",
    j: str = "1x1",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    debug: bool = False,
) -> specs.AppDef:
    """Single program, multiple data: torchrun with one process for each GPU by default.

    Args:
        args: arguments of the script or module
        script: program to run, a path inside the image
        m: python module to run, instead of a script
        image: image that holds the program
        name: name of the job as `experiment/run`; what is left out is derived
        h: named resource of each node
        j: size as `nodes[x processes_per_node]`; default is a process for each GPU
        env: environment variables, as `K1=V1,K2=V2`
        metadata: metadata of the app, as `K1=V1,K2=V2`
        max_retries: how often to start again before giving up
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
        debug: set the environment variables that make PyTorch log more
    """
    return torchrun(
        *args,
        script=script,
        m=m,
        image=image,
        name=name,
        h=h,
        j=str(StructuredJArgument.parse_from(h, j)),
        env=env,
        metadata=metadata,
        max_retries=max_retries,
        mounts=mounts,
        debug=debug,
    )


def _torchrun_app(
    script_args: tuple[str, ...],
    script: str | None,
    m: str | None,
    image: str,
    name: str,
    h: str | None,
    cpu: int,
    gpu: int,
    mem_mb: int,
    nodes: tuple[int, int, int, str],
    env: dict[str, str] | None,
    metadata: dict[str, str] | None,
    max_retries: int,
    rdzv_port: int,
    rdzv_backend: str,
    rdzv_conf: str | None,
    mounts: list[str] | None,
    debug: bool,
    tee: int,
) -> specs.AppDef:
    if (script is None) == (m is None):
        msg = "exactly one of --script and -m must be specified"
        raise InvalidInput(msg)
    min_nodes, max_nodes, procs, nnodes = nodes
    job = StructuredNameArgument.parse_from(name, m=m, script=script)
    command = ["torchrun", "--rdzv_backend", rdzv_backend]
    if rdzv_conf is not None:
        command += ["--rdzv_conf", rdzv_conf]
    command += ["--rdzv_endpoint", _endpoint(max_nodes, rdzv_port), "--rdzv_id", macros.app_id]
    command += ["--nnodes", nnodes, "--nproc_per_node", str(procs), "--tee", str(tee)]
    command += ["--role", ""]
    if rdzv_backend == "static":
        command += ["--node_rank", macros.replica_id]
    command += [script] if script is not None else ["-m", str(m)]
    command += script_args
    return specs.AppDef(
        name=job.run_name,
        roles=[
            specs.Role(
                name=get_role_name(script, m),
                image=image,
                min_replicas=min_nodes,
                entrypoint="bash",
                args=["-c", _join(command)],
                env=_environment(env, job, debug),
                num_replicas=max_nodes,
                max_retries=max_retries,
                resource=specs.resource(cpu=cpu, gpu=gpu, memMB=mem_mb, h=h),
                port_map={"c10d": rdzv_port},
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
        metadata=dict(metadata or {}),
    )


def _endpoint(max_nodes: int, port: int) -> str:
    if max_nodes == 1:
        return "localhost:0"
    # the shell resolves the name of the variable that the scheduler filled in
    return _noquote(f"$${{{macros.rank0_env}:=localhost}}:{port}")


def _environment(
    env: dict[str, str] | None, job: StructuredNameArgument, debug: bool
) -> dict[str, str]:
    merged = dict(env or {})
    merged[ENV_TORCHX_TRACKING_EXPERIMENT_NAME] = job.experiment_name
    merged[ENV_TORCHX_TRACKING_RUN_NAME] = job.run_name
    merged.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "WARNING"))
    if debug:
        merged.update(_TORCH_DEBUG_FLAGS)
    return merged


def _join(command: list[str]) -> str:
    return " ".join(c if isinstance(c, _noquote) else shlex.quote(c) for c in command)


def get_role_name(script: str | None, m: str | None) -> str:
    """The script's name without its ending, or the last part of the module's name."""
    if script:
        return Path(script).stem
    if m:
        return m.rpartition(".")[2]
    msg = "failed to compute role_name"
    raise InvalidInput(msg)


def parse_nnodes(j: str) -> tuple[int, int, int, str]:
    """Reads ``[[min:]nodes x]processes``.

    >>> parse_nnodes("1:2x4")
    (1, 2, 4, '1:2')

    Returns:
        Least and most nodes, processes on each, and what torchrun takes for ``--nnodes``.

    Raises:
        ValueError: if the text is not of this form.
    """
    nodes, x, procs = j.rpartition("x")
    least, colon, most = nodes.rpartition(":")
    numbers = [procs, *([most] if x else []), *([least] if colon else [])]
    good = all(n.isascii() and n.isdecimal() for n in numbers)
    if not good or (colon and int(least) > int(most)):
        msg = f"Invalid format for -j, usage example: 1:2x4 or 1x4 or 4. Given: {j}"
        raise InvalidInput(msg)
    if not x:
        return 1, 1, int(procs), "1"
    if not colon:
        return int(most), int(most), int(procs), most
    return int(least), int(most), int(procs), nodes
