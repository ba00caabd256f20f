"""Components for everyday use: shell commands, python programs, copies."""

import os
from typing import Annotated

import torchx.specs as specs
from torchx import IMAGE
from torchx.errors import InvalidInput


def echo(msg: str = "hello world", image: str = IMAGE, num_replicas: int = 1) -> specs.AppDef:
    """Echos a message to stdout (calls echo)

    Args:
        msg: message to echo
        image: image to use
        num_replicas: number of replicas to run
    """
    return specs.AppDef(
        name="echo",
        roles=[
            specs.Role(
                name="echo",
                image=image,
                entrypoint="echo",
                args=[msg],
                num_replicas=num_replicas,
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )


def touch(file: str, image: str = IMAGE) -> specs.AppDef:
    """Touches a file (calls touch)

    Args:
        file: file to create
        image: image to use
    """
    return specs.AppDef(
        name="touch",
        roles=[
            specs.Role(
                name="touch",
                image=image,
                entrypoint="touch",
                args=[file],
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )


def sh(
    *args: str,
    image: str = IMAGE,
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    entrypoint: str | None = None,
) -> specs.AppDef:
    """Runs a command in a shell (calls sh); nothing in it is expanded

    Args:
        args: the command and its arguments; a script is `-- sh -c 'a; b'`
        image: image to use
        num_replicas: number of replicas to run
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory per replica, in MB
        h: a registered named resource; wins over cpu, gpu and memMB
        env: environment variables, as `K1=V1,K2=V2`
        max_retries: how often to start again before giving up
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
        entrypoint: program to call with the arguments as they are, instead of a shell
    """
    import shlex

    if entrypoint is None:
        _check_command(args)
    role_args = list(args) if entrypoint is not None else ["-c", shlex.join(args)]
    role_env = dict(env or {})
    role_env.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "WARNING"))
    return specs.AppDef(
        name="sh",
        roles=[
            specs.Role(
                name="sh",
                image=image,
                entrypoint="sh" if entrypoint is None else entrypoint,
                args=role_args,
                env=role_env,
                num_replicas=num_replicas,
                max_retries=max_retries,
                resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
    )


def _check_command(args: tuple[str, ...]) -> None:
    """Refuses a missing command, and a script in place of a program's name."""
    if not args:
        msg = "`utils.sh` has nothing to run, put the command behind it: utils.sh -- ls -l"
        raise InvalidInput(msg)
    program = args[0]
    if len(args) == 1 and len(program.split()) > 1 and not program.startswith(("/", "./", "../")):
        msg = (
            f"`utils.sh` takes a command and its arguments one by one, and `{program}` is no"
            " program; a script is run by: utils.sh -- sh -c 'SCRIPT'"
        )
        raise InvalidInput(msg)


def python(
    *args: str,
    m: str | None = None,
    c: str | None = None,
    script: str | None = None,
    image: str = IMAGE,
    name: str = "torchx_utils_python",
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    num_replicas: int = 1,
    mounts: list[str] | None = None,
) -> specs.AppDef:
    """Runs python with a module, a command or a script

    Args:
        args: arguments of the program
        m: module to run
        c: command to run
        script: script to run
        image: image to use
        name: name of the job
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory per replica, in MB
        h: a registered named resource; wins over cpu, gpu and memMB
        num_replicas: number of replicas to run
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
    """
    given = [
        (flag, value) for flag, value in (("-m", m), ("-c", c), ("", script)) if value is not None
    ]
    if len(given) != 1:
        msg = "exactly one of `-m`, `-c` and `--script` needs to be specified"
        raise InvalidInput(msg)
    flag, program = given[0]
    if not program:
        msg = "no program specified"
        raise InvalidInput(msg)
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name="python",
                image=image,
                entrypoint="python",
                args=[*([flag] if flag else []), program, *args],
                env={"HYDRA_MAIN_MODULE": m} if m else {},
                num_replicas=num_replicas,
                resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
    )


def binary(
    *args: str,
    entrypoint: str,
    name: str = "torchx_utils_binary",
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
) -> specs.AppDef:
    """Runs a program with arguments

    Args:
        args: arguments of the program
        entrypoint: the program
        name: name of the job
        num_replicas: number of replicas to run
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory per replica, in MB
        h: a registered named resource; wins over cpu, gpu and memMB
    """
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name=name,
                image=specs.NONE,
                entrypoint=entrypoint,
                args=list(args),
                num_replicas=num_replicas,
                resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
            )
        ],
    )


def copy(src: str, dst: str, image: str = IMAGE, mounts: list[str] | None = None) -> specs.AppDef:
    """Copies a file from one place to another; both may be fsspec URLs

    Args:
        src: the file to copy
        dst: where to copy it
        image: image to use
        mounts: mounts, as `type=bind,src=/host,dst=/job[,readonly]`
    """
    return specs.AppDef(
        name="torchx-utils-copy",
        roles=[
            specs.Role(
                name="torchx-utils-copy",
                image=image,
                entrypoint="python",
                args=["-m", "torchx.apps.utils.copy_main", "--src", src, "--dst", dst],
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
    )


def booth(
    x1: float,
    x2: float,
    trial_idx: int = 0,
    tracker_base: str = "/tmp/torchx-util-booth",
    image: str = IMAGE,
) -> specs.AppDef:
    """Evaluates the booth function, `f(x1, x2) = (x1 + 2*x2 - 7)^2 + (2*x1 + x2 - 5)^2`

    Args:
        x1: x1
        x2: x2
        trial_idx: number of the trial, under which the result is stored
        tracker_base: URI of the folder that holds the results
        image: image to use
    """
    return specs.AppDef(
        name="torchx-utils-booth",
        roles=[
            specs.Role(
                name="torchx-utils-booth",
                image=image,
                entrypoint="python",
                args=[
                    "-m",
                    "torchx.apps.utils.booth_main",
                    "--x1",
                    str(x1),
                    "--x2",
                    str(x2),
                    "--trial_idx",
                    str(trial_idx),
                    "--tracker_base",
                    tracker_base,
                ],
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )


def hydra(
    *overrides: str,
    config_name: Annotated[str, "-cn"],
    config_dir: Annotated[str, "-cd"] = ".torchx",
) -> specs.AppDef:
    """Builds an app from a hydra config, whose node `app` describes it

    Args:
        overrides: overrides in hydra's grammar, `role.num_replicas=3` for example
        config_name: name of the config, without its ending
        config_dir: folder of the config
    """
    from torchx.specs._hydra import compose_app

    return compose_app(config_dir, config_name, list(overrides))
