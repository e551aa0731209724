"""Versions that are too old are reported in one line, before any use of them."""

import os
import re
import subprocess
import sys

import pytest
from harness import SDK
from snakepit.grpc import server as grpc_server

MAIN = os.path.join(SDK, "snakepit", "__main__.py")


def an_older_python_is_refused_in_one_line():
    code = f"import sys, runpy; sys.version_info = (3, 8, 18, 'final', 0); runpy.run_path({MAIN!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"snakepit: a worker needs Python 3.9 or newer, and {sys.executable} is 3.8: name another one with `python`\n"
    )


@pytest.mark.parametrize("package, old, works", [
    ("grpcio", ["1.9.1", "1.32.0", "0.15"], ["1.33.2", "1.85.1", "2.0.0rc1", "1.33"]),
    ("protobuf", ["2.6.1", "3.11.4", "3.9"], ["3.12.0", "3.20.3", "4.21.0", "7.36.2"]),
])
def what_grpc_needs_is_compared_by_its_numbers(package, old, works):
    for version in works:
        grpc_server.check_version(package, version)
    for version in old:
        with pytest.raises(ImportError, match=f"{package} {version} is too old"):
            grpc_server.check_version(package, version)


def an_older_protobuf_is_refused_before_it_fails():
    pytest.importorskip("grpc")
    pytest.importorskip("google.protobuf")
    code = (
        "from google import protobuf; protobuf.__version__ = '3.11.4'\n"
        "from snakepit.grpc import server; server.serve('worker.py', 'unix:/nonexistent')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SDK})
    assert done.returncode == 1
    assert done.stderr == (
        "snakepit: this worker cannot serve gRPC: protobuf 3.11.4 is too old, 3.12 is the oldest that works; "
        f"run: {sys.executable} -m pip install grpcio protobuf\n"
    )


def what_is_installed_is_no_older_than_what_is_refused():
    with open(os.path.join(SDK, "pyproject.toml")) as file:
        listed = re.search(r"^grpc = \[(.*)\]$", file.read(), re.M).group(1)
    said = {name: (int(major), int(minor)) for name, major, minor in re.findall(r'"(\w+)>=(\d+)\.(\d+)"', listed)}
    assert said == grpc_server.OLDEST
