"""The core shared by all schedulers: snapshots, exit codes, logs and checks.

These modules import ``torchx.specs`` and ``torchx.errors`` only, never a scheduler. Authors of
schedulers import what they need from ``torchx.schedulers.api``.
"""
