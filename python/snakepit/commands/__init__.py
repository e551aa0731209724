"""Commands: the functions that a worker offers, and the arguments that they take."""
