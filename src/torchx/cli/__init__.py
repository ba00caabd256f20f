"""The command line. ``torchx.cli.main:main`` is the console script."""
