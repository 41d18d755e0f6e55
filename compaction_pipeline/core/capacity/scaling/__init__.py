"""Decides how many optimizers a group has, and how large they are: from what was seen of it, and from what its policy allows."""
