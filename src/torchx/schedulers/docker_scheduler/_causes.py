"""Rules for Docker's messages.

https://docs.docker.com/engine/containers/run/#exit-status
"""

from torchx.schedulers._core.causes import Cause, Rule

RULES = (
    Rule(
        Cause.OUT_OF_MEMORY,
        r"out of memory: its limit is (?P<limit>\d+) MB",
        "it used more than its limit of {limit} MB of memory",
        ("Raise memMB in the role's resource (`--memMB` of components), or use less",),
    ),
    Rule(
        Cause.MOUNT,
        r"invalid mount config|bind source path does not exist|error mounting|mounts? denied"
        r"|error while mounting|failed to mount|is not shared from the host",
        "a mount could not be made",
        ("See that the path is there on the machine of the daemon, and may be mounted",),
    ),
    Rule(
        Cause.UNSCHEDULABLE,
        r"could not select device driver|nvidia-container-cli|unknown runtime"
        r"|unknown or invalid runtime|no such device|error gathering device information",
        "the machine does not have a device that it asks for, or Docker cannot pass it on",
        (
            "Install the container toolkit of the GPUs, or ask for no GPU",
            "torchx doctor -s local_docker",
        ),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r'exec: \\?"?(?P<command>[^"\\]+)\\?"?: (executable file not found|stat .*no such file)',
        "its command `{command}` is not in the image",
        ("Use an image that has it, or give the whole path",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"exec:? .*permission denied|exec format error",
        "its command cannot be executed in the image",
        ("Make it executable, and use an image for the processor of this machine",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"no such file or directory: unknown|chdir to cwd",
        "a file or folder that it starts with is not in the image",
        ("See that the command and its folder are in the image",),
    ),
    Rule(
        Cause.IMAGE_PULL,
        r"no such image|pull access denied|manifest unknown|unable to find image|toomanyrequests",
        "its image cannot be had",
        ("Check the name of the image, and `docker login` to its registry",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"port is already allocated|address already in use|failed to set up container networking",
        "the network of its container could not be made: a port or an address is taken",
        ("Free it, or choose another one",),
    ),
    Rule(
        Cause.BAD_OPTION,
        r"unable to find user|network [^\s]+ not found|invalid user|unknown or invalid"
        r"|minimum memory limit allowed|range of CPUs is from",
        "Docker does not take an option of its container",
    ),
    Rule(Cause.HELD, r"^paused$", "its container is paused", ("docker unpause CONTAINER",)),
    Rule(Cause.STARTING, r"replicas are not started yet", "its containers are being started"),
)

REFUSALS = (
    Rule(
        Cause.ACCESS_DENIED,
        r"Docker daemon at .*cannot be reached: permission denied",
        "you may not talk to the Docker daemon",
        ("sudo usermod -aG docker $USER  # then log in anew",),
    ),
    *(
        rule
        for rule in RULES
        if rule.cause not in (Cause.OUT_OF_MEMORY, Cause.HELD, Cause.STARTING)
    ),
)
"""Of the Docker daemon, which refuses containers in the words in which it tells why they failed."""
