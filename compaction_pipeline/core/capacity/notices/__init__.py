"""Tells people what the program changed by itself: whom, in which words, and for how long it is tried."""
