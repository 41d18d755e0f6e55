"""Starts optimizers, finds their processes again, and ends them. Only the host's processes and files are its world."""
