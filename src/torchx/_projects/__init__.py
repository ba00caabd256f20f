"""Files of local projects: found, left out, read and copied. Below ``specs``, which copies too."""
