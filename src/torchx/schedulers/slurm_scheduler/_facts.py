"""What the dry run asks the cluster: its version, and whether memory may be requested."""

import functools
import warnings

from ._request import GPUS_PER_NODE_SINCE

_ASSUMED_VERSION = (24, 5)


@functools.cache
def version() -> tuple[int, int]:
    """Version of the cluster, asked for once; warns and assumes one if sinfo does not tell."""
    from ._client import sinfo

    text = sinfo("--version")
    found = parse_version(text) if text is not None else None
    if found is None:
        major, minor = _ASSUMED_VERSION
        warnings.warn(
            f"`sinfo --version` does not tell the version of Slurm, assuming {major}.{minor:02d}",
            RuntimeWarning,
            stacklevel=2,
        )
        return _ASSUMED_VERSION
    return found


def parse_version(text: str) -> tuple[int, int] | None:
    """Reads ``slurm 24.11.0 rev1``; ``None`` if it is something else.

    >>> parse_version("slurm-wlm 22.05.8")
    (22, 5)
    """
    words = text.split()
    parts = words[1].split(".") if len(words) > 1 else []
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])


def _should_use_gpus_per_node_from_version() -> bool:
    import torchx.schedulers.slurm_scheduler as package

    return package.version() >= GPUS_PER_NODE_SINCE  # clients replace that name


def _partition_memmb(partition: str | None) -> int | None:
    """Memory of a partition's nodes in MB, of the default one for ``None``; ``None`` if unknown."""
    from ._client import sinfo

    text = sinfo("--format", "%P,%m", "--noconvert")
    return parse_memory(text, partition) if text is not None else None


def parse_memory(text: str, partition: str | None) -> int | None:
    """Memory in the table that ``sinfo --format %P,%m`` prints; ``*`` marks the default.

    >>> parse_memory("PARTITION,MEMORY\\ndebug*,2048+\\nbig,9M\\n", None)
    2048
    """
    for line in text.split("\n")[1:]:
        name, comma, memory = line.strip().rpartition(",")
        default = name.endswith("*")
        wanted = default if partition is None else name.rstrip("*") == partition
        digits = memory.rstrip("+M")
        if comma and wanted and digits.isdecimal():
            return int(digits)
    return None
