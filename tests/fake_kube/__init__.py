"""A stand-in for a Kubernetes cluster: ``python -m tests.fake_kube`` serves it over HTTP.

It keeps objects, validates those of the core, runs the controllers that schedulers rely on, runs
the commands of pods as local processes, and injects faults. What it does follows the documentation;
where a real cluster differs, the real one is right.
"""
