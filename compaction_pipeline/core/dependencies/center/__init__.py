"""The dependency center: which work waits for which data, and when it starts."""
