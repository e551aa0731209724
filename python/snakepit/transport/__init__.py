"""The transport: what a worker and its host share besides the meaning of their messages."""
