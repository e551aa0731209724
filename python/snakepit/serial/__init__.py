"""The serial loop: one call at a time, in one thread."""
