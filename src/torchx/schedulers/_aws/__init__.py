"""The base of schedulers on AWS: sessions and calls, errors, logs of CloudWatch. boto3 is needed on
the first call, not before.
"""
