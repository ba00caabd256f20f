"""Built-in components: templates of common jobs, each a function that returns an ``AppDef``."""
