"""Empty: adapters for pipelines are no longer here, but the package can be imported."""
