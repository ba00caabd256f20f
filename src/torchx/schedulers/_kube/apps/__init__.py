"""Apps on a cluster: the code shared by the schedulers that run pods.

``labels`` and ``pods`` build, ``app``, ``snapshots`` and ``reasons`` parse, all of them pure;
``look``, ``logs``, ``watches`` and ``clusters`` query the cluster.
"""
