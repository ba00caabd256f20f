"""Structured arguments of components: names and sizes of jobs."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import InvalidInput
from torchx.specs import resource


@dataclass
class StructuredNameArgument:
    """``experiment/run``: the name of a job."""

    experiment_name: str
    run_name: str

    def __str__(self) -> str:
        return f"{self.experiment_name}/{self.run_name}"

    @staticmethod
    def parse_from(
        name: str,
        m: str | None = None,
        script: str | None = None,
        default_experiment_name: str = "default-experiment",
    ) -> "StructuredNameArgument":
        """Reads ``experiment/run``; an empty run is named after the module or script.

        >>> str(StructuredNameArgument.parse_from("/", script="a/train.py"))
        'default-experiment/train'

        Raises:
            ValueError: unless exactly one of ``m`` and ``script`` is given.
        """
        if not m and not script:
            msg = (
                "No main module or script specified. Specify either a main module or a script path"
            )
            raise InvalidInput(msg)
        if m and script:
            msg = (
                "Both main module and script set."
                " Specify exactly one of: main module or script, but not both"
            )
            raise InvalidInput(msg)
        experiment, slash, run = name.partition("/")
        if not slash:
            experiment, run = "", name
        if not run:
            run = m.rpartition(".")[2] if m else Path(str(script)).stem
        return StructuredNameArgument(experiment or default_experiment_name, run)


@dataclass
class StructuredJArgument:
    """``nodes x processes per node``: the size of a job."""

    nnodes: int
    nproc_per_node: int

    def __str__(self) -> str:
        return f"{self.nnodes}x{self.nproc_per_node}"

    @staticmethod
    def parse_from(h: str, j: str) -> "StructuredJArgument":
        """Reads ``NxM``, or ``N`` with one process for each GPU of the named resource ``h``.

        Raises:
            KeyError: if there is no such named resource.
            ValueError: if the text is not of this form, or ``h`` has no GPU to count.
        """
        gpus = resource(h=h).gpu
        parts = j.split("x")
        if len(parts) > 2:
            msg = f"Invalid format for `-j $NNODESx$NPROCS_PER_NODE` (e.g. `-j 1x8`). Given: {j}"
            raise InvalidInput(msg)
        nnodes = int(parts[0])
        if len(parts) == 2:
            nproc = int(parts[1])
            if nproc != gpus:
                warnings.warn(
                    f"`-j {j}` runs {nproc} processes on each node, but `{h}` has {gpus} GPUs",
                    UserWarning,
                    stacklevel=2,
                )
            return StructuredJArgument(nnodes, nproc)
        if gpus <= 0:
            msg = (
                f"nproc_per_node cannot be inferred from GPU count. `{h}` is not a GPU instance."
                " You must specify `-j $NNODESx$NPROCS_PER_NODE`"
                f" (e.g. `-j {nnodes}x8`)"
            )
            raise InvalidInput(msg)
        return StructuredJArgument(nnodes, gpus)
