"""Finds, filters, reads and copies files of local projects; a layer below ``specs``."""
