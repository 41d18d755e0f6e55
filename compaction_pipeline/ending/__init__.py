"""Makes our processes end when they are told to, even if something hangs. Standard library only, because every command imports it."""
