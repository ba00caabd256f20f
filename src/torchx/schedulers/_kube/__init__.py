"""A small client of the Kubernetes API, shared by the schedulers that run there.

Nothing is imported here: a dry run needs none of it, and a status needs neither watches nor logs.
"""
