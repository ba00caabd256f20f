"""The client of AWS, for schedulers and registries: sessions, calls and errors.

boto3 is needed on the first call, not before.
"""
