"""Use cases about access to the HTTP service."""
