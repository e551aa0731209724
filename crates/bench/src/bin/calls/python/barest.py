"""Like bare.py, but imports only what the interpreter itself loads. Usage: barest.py, over descriptor 0"""

import posix

posix.write(0, b"r")
posix.read(0, 1)
