"""Test helpers for authors of apps, components and schedulers.

``torchx.testing.fixtures`` needs nothing, ``torchx.testing.distributed`` needs PyTorch and
``torchx.testing.scheduler_suite`` needs pytest.
"""
