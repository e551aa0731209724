"""The concurrent loop: several calls at a time, in threads and tasks."""
