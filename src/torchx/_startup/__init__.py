"""All that exists to make commands start fast, and what each part saves.

Measured as whole processes on an idle processor, medians of 20 runs, Python 3.11; a bare
interpreter takes 6.0 ms:

=====================  =========================================================================
part                   what it saves
=====================  =========================================================================
``collector``          8 ms of 37 of a dry run, 8 of 49 on ``slurm``, 0.8 of 6.2 of ``--help``
``lazy_logger``        6.5 ms of 6.2 + 6.5 of ``--help``, about 2 of any other command
``entry_points``       20 ms of ``--help``, 16 of a dry run
``plugin_lookup``      3.4 ms of 37 of a dry run and of ``list``
``local_supervisor``   5.4 ms of 45 of a whole ``run``, and 3.8 more by ``while_starting``
``TYPE_CHECKING``      6 ms of ``--version`` and ``--help``: see below
``foreign_code``       nothing itself; it is here so that all may use it without ``torchx.plugins``
=====================  =========================================================================

``TYPE_CHECKING = False`` instead of its import stands in the modules that ``torchx --version`` and
``--help`` load, and in the supervisor of local jobs, where ``typing`` would be the slowest import.
Its name alone tells type checkers. Everywhere else ``typing`` is loaded anyway.
"""
