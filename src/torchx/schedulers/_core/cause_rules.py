"""Rules for messages that are the same on every scheduler: of programs, Python and the kernel."""

from .causes import Cause, Rule

_READ = "torchx log {app} {replica}"
_MEMORY = "Ask for more memory in the role's resource, or use less"
_WAIT = "Nothing: its turn comes by itself"

COMMON_WORDS = (
    Rule(Cause.DISK_FULL, r"no space left on device|disk quota exceeded", "a disk is full"),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"\bout of memory\b",
        "it used more memory than it was given",
        (_MEMORY,),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"was never started|half-(started|submitted)|never be(en)? started",
        "it was launched in part only",
        ("torchx delete {app}", "Then run it again"),
    ),
)
"""Rules for messages of backends; tried after a scheduler's own rules."""

COMMON_REFUSALS = (
    Rule(
        Cause.IMAGE_PULL,
        r"pull access denied|manifest unknown|manifest for .* not found|no such image"
        r"|name unknown|toomanyrequests|is not on this machine and cannot be pulled"
        r"|repository does not exist",
        "an image is not there, or may not be pulled",
        ("Check the name of the image, and log in to its registry: docker login",),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"requested access to the resource is denied|no basic auth credentials"
        r"|insufficient_scope",
        "the registry of its image does not let you in",
        ("Log in to the registry: docker login", "Choose another `-cfg image_repo=...`"),
    ),
    Rule(
        Cause.DISK_FULL,
        r"no space left on device|disk quota exceeded",
        "a disk is full, so that nothing was launched",
        ("Free space, or choose other folders: torchx runopts {scheduler}",),
    ),
    Rule(
        Cause.ACCESS_DENIED,
        r"authentication required|\bunauthorized\b|credentials .*(expired|not accept)"
        r"|does not accept the credentials|no credentials",
        "the credentials are missing, or are not accepted",
        ("Log in anew, then run it again", "torchx doctor -s {scheduler}"),
    ),
)
"""Of why backends and registries refuse a launch; tried after a scheduler's own rules."""

OUTPUT_RULES = (
    Rule(
        Cause.OUT_OF_MEMORY,
        r"(CUDA|HIP|XPU|MPS)[^\n]{0,40}out of memory|(cuda\.|torch\.)OutOfMemoryError",
        "the memory of a GPU was not enough",
        ("Use a smaller batch, shard the model, or ask for larger GPUs", _READ),
    ),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"DataLoader worker .* killed by signal: Bus error|insufficient shared memory",
        "the shared memory in /dev/shm was not enough",
        ("Give the role a larger /dev/shm, or use fewer DataLoader workers",),
    ),
    Rule(
        Cause.OUT_OF_MEMORY,
        r"(^|: )MemoryError\b|instance of 'std::bad_alloc'|what\(\): *std::bad_alloc"
        r"|Cannot allocate memory|Detected \d+ oom[-_]kill event",
        "its memory was not enough",
        (_MEMORY,),
    ),
    Rule(
        Cause.DISK_FULL,
        r"No space left on device|Disk quota exceeded",
        "a disk that it writes to is full",
        ("Free space, or let it write elsewhere", _READ),
    ),
    Rule(
        Cause.APP_ERROR,
        r"ModuleNotFoundError: No module named '(?P<module>[^']+)'",
        "the Python module `{module}` is not there where it runs",
        ("Install `{module}` in the image, or add its folder to the workspace",),
    ),
    Rule(
        Cause.APP_ERROR,
        r"can't open file '(?P<file>[^']+)'",
        "its script `{file}` is not there where it runs",
        ("See that the script is in the workspace, and not ignored by its ignore file",),
        frozenset({2}),
    ),
    Rule(
        Cause.APP_ERROR,
        r"Address already in use|EADDRINUSE",
        "a port that it listens on is taken",
        ("Choose another port, or let `dist.ddp` choose a free one",),
    ),
    Rule(
        Cause.APP_ERROR,
        r"Watchdog caught collective operation timeout|collective operation timed? ?out",
        "a collective operation timed out: another replica hangs, is slow or is gone",
        ("Look for the replica that fell behind: torchx log {app}",),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"error while loading shared libraries: (?P<library>[^\s:]+): cannot open",
        "the library `{library}` of its program is not there where it runs",
        ("Install it in the image, or set LD_LIBRARY_PATH", _READ),
        frozenset({127}),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"(?P<command>[^\s:]+): (command )?not found|: No such file or directory$",
        "its command was not found where it runs",
        ("See that the command is in the image and on PATH there", _READ),
        frozenset({127}),
    ),
    Rule(
        Cause.LAUNCH_FAILED,
        r"Permission denied|cannot execute|Exec format error",
        "its command could not be executed",
        ("Make the file executable, for the processor of the machine it runs on", _READ),
        frozenset({126}),
    ),
)
"""Rules for exceptions and last lines."""

WAIT = (_WAIT,)
"""The advice if nothing is wrong."""
