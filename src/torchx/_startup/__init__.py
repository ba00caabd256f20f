"""All that exists to make commands start fast, and what each part saves.

Measured by leaving out one part at a time: wall times of whole processes, medians of 15 runs
interleaved with a bare interpreter, which takes 6.0 ms, Python 3.11. With all of them ``--help``
takes 9.7 ms, a dry run 24, one for ``slurm`` 36, a whole ``run`` 35, ``list`` of 10,000 jobs 41.

=====================  =========================================================================
part                   what it saves
=====================  =========================================================================
``dataclass``          9 ms of a dry run, 10 of a ``run`` and of one for ``slurm``, 17 of ``list``
``signatures``         3 ms of a dry run
``collector``          4 ms of a dry run, 7 of one for ``slurm``, 1.2 of ``--help``
``lazy_logger``        3.4 ms of ``--help``, 2 of any other command that logs nothing
``entry_points``       15 ms of ``--help`` and of a dry run
``plugin_lookup``      6 ms of a dry run, 5 of ``list``
``local_supervisor``   7 ms of a ``run``, of which 5.5 by ``while_starting``
``TYPE_CHECKING``      5 ms of ``--version`` and ``--help``: see below
``foreign_code``       nothing itself; kept here so that it can be used without ``torchx.plugins``
=====================  =========================================================================

``TYPE_CHECKING = False`` instead of its import stands in the modules that ``torchx --version`` and
``--help`` load, and in the supervisor of local jobs, where ``typing`` would be the slowest import.
Type checkers recognize the variable by its name. It saves 1.7 ms where the script that installers
make for
``torchx`` has loaded ``re`` before. Everywhere else ``typing`` is loaded anyway.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late_names(
    module: str, names: "Mapping[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Returns ``__getattr__`` and ``__dir__`` of a module some of whose names are loaded late.

    Args:
        names: where each name comes from: ``module:attribute``, or a module.
    """

    def find(name: str) -> object:
        if name not in names:
            msg = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module

        place, _, attribute = names[name].partition(":")
        found: object = import_module(place)
        if attribute:
            found = getattr(found, attribute)
        setattr(sys.modules[module], name, found)
        return found

    def names_of_all() -> "list[str]":
        return sorted({*vars(sys.modules[module]), *names})

    return find, names_of_all
