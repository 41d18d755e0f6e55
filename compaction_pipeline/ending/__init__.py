"""How our processes end when they are told to, whatever hangs. Standard library only: every command imports it."""
