"""gunicorn as a worker: `gunicorn -c gunicorn.conf.py application:app`. It listens on the offered socket, and announces when it is ready."""

import json
import os

bind = "unix:" + os.environ["SNAKEPIT_SOCKET"]
workers = 1
threads = int(os.environ.get("SNAKEPIT_CONCURRENCY", "1"))
loglevel = "warning"


def when_ready(server):
    ready = {"status": "ready", "socket": os.environ["SNAKEPIT_SOCKET"], "pid": os.getpid()}
    print(json.dumps(ready), flush=True)
