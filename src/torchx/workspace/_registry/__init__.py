"""Appends a workspace to an image in its registry; needs no Docker daemon."""
