"""Commands that create processes, in all the ways that Python offers."""

import multiprocessing
import os
import subprocess
import sys
import time

import snakepit


def square(number):
    return number * number


def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@snakepit.command
def echo(value):
    return value


@snakepit.command
def fork(way: str):
    """Returns how a child ends that does this."""
    pid = os.fork()
    if pid:
        return status_of(pid)
    if way == "leave":
        os._exit(7)
    if way == "exit":
        sys.exit(3)
    if way == "raise":
        raise ValueError("in the child")
    if way == "tell":
        try:
            snakepit.context().progress(0.5)
        except RuntimeError:
            os._exit(9)
    return "what nobody hears"


@snakepit.command
def program():
    return subprocess.run(["echo", "said"], capture_output=True, text=True, check=True).stdout.strip()


@snakepit.command
def pool(method: str):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(square, range(5))


@snakepit.command
def leave(way: str):
    """Leaves a process behind, and returns its pid."""
    if way != "fork in a session of its own":
        process = multiprocessing.get_context(way).Process(target=time.sleep, args=(1000,))
        process.start()
        return process.pid
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(1000)
        os._exit(0)
    return pid
