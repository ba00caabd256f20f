"""The base of schedulers on AWS: logs of CloudWatch, and checks of the installation."""
