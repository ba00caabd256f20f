"""Programs and helpers for jobs; a job never needs them."""
