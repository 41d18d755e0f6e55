"""Looks at the files that a worker reports, and describes them by what they are and not by what the worker says."""
