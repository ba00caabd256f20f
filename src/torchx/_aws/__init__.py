"""One client of AWS, for schedulers and registries: sessions, calls and errors.

Needs boto3 where something is called, and not before.
"""
