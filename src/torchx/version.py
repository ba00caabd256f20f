"""Version of the package and the image that its built-in components run in by default."""

__version__ = "0.8.0"
