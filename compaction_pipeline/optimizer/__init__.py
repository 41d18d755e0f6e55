"""The optimizer: a long-running worker that takes its tasks from a server over HTTP."""
