"""A small client of the Kubernetes API, shared by the schedulers that run there.

Nothing is imported here: a dry run needs nothing of it, and a status needs no watch and no logs.
"""
