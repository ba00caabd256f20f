"""What schedulers on AWS share: sessions and calls, errors, logs of CloudWatch. Needs boto3 where
something is called, and not before."""
