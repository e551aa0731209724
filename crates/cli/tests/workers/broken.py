"""A worker that cannot be loaded."""

raise RuntimeError("broken on purpose")
