"""The HTTP service: the door for optimizers on other hosts, and for programs."""
