"""Access: who may call the HTTP service, and what for."""
