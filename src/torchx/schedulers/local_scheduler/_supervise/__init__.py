"""The program of the process that supervises one local job.

The supervisor is a fresh interpreter started with ``-I -S``: it must be up in a few
milliseconds, so the modules here import nothing but built-in ones and each other, relatively.
The rest of torchx imports ``format``, ``journal`` and ``tree`` from here, to read the supervisor's
files, and to complete them if the supervisor could not.
"""
