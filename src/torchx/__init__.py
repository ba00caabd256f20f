"""TorchX: write a job once, launch it anywhere."""
