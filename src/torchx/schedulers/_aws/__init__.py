"""What schedulers on AWS share: the logs of CloudWatch, and checks of the installation."""
