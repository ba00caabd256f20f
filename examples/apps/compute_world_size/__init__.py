"""Finds out the number of processes of a job by adding up."""
