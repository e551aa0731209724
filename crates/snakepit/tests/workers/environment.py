"""Reports where it runs and what it finds there."""

import importlib
import os
import subprocess
import sys

import snakepit


@snakepit.command
def where():
    return {"executable": sys.executable, "prefix": sys.prefix, "version": list(sys.version_info[:3]), "pid": os.getpid()}


@snakepit.command
def version_of(package):
    return importlib.import_module(package).VERSION


@snakepit.command
def variables(names):
    return {name: os.environ.get(name) for name in names}


@snakepit.command
def output_of(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


@snakepit.command
def parent():
    return os.getppid()


@snakepit.command
def die_of_its_gpu():
    print("CUDA error: an illegal memory access was encountered", file=sys.stderr, flush=True)
    os.abort()


@snakepit.command
def multiply(size, times):
    import numpy

    matrix = numpy.random.rand(size, size)
    for _ in range(times):
        product = matrix @ matrix
    return float(product[0, 0])
