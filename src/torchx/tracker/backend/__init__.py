"""Trackers that come with TorchX."""
