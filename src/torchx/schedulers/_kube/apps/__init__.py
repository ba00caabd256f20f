"""Apps on a cluster: what the schedulers that run pods share.

``labels`` and ``pods`` build, ``app`` ``snapshots`` ``reasons`` read, all of them pure; ``look``
``logs`` ``watches`` ``clusters`` ask the cluster.
"""
