"""A stand-in for AWS over HTTP, started as a process: ``python -m tests.fake_aws``.

It speaks the protocols of botocore (``json``, ``rest-json``, ``query`` and what S3 needs), driven
by botocore's own model of each service: a request that does not fit the model is refused, as is an
answer of ours. One module holds one service: a class with a method for each operation, named as in
the model::

    class Logs:
        name = "logs"

        def GetLogEvents(self, params: Params) -> Params: ...

It is listed in ``services.SERVICES``. Tests start all of it with ``FakeAws`` (``server.py``), whose
``environment()`` leads boto3 there, and break it with ``fault(...)`` (``faults.py``).
"""
