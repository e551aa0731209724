"""Checks of the SDK that need not run it."""

import ast
import os
import re
import subprocess
import sys

import pytest
import snakepit
from harness import ROOT, SDK

PACKAGE = os.path.join(SDK, "snakepit")
FILES = sorted(
    os.path.relpath(os.path.join(folder, name), PACKAGE)
    for folder, _, names in os.walk(PACKAGE)
    for name in names
    if name.endswith(".py")
)


def source(name):
    with open(os.path.join(PACKAGE, name)) as file:
        return file.read()


@pytest.mark.parametrize("name", FILES)
def each_file_is_python_3_9(name):
    ast.parse(source(name), feature_version=(3, 9))


def each_file_uses_nothing_newer_than_3_9():
    pytest.importorskip("vermin")
    vermin = [sys.executable, "-c", "import vermin; vermin.main()"]
    command = [*vermin, "--target=3.9-", "--no-tips", "--violations", "--eval-annotations", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def each_file_fits_a_sitting():
    others = [os.path.join(SDK, folder) for folder in ("tests", "bench")]
    paths = [os.path.join(folder, name) for folder in others for name in os.listdir(folder) if name.endswith(".py")]
    for path in [*paths, *(os.path.join(PACKAGE, name) for name in FILES)]:
        with open(path) as file:
            lines = file.read().count("\n")
        assert lines <= 500, f"{path} has {lines} lines"


def each_file_says_what_it_owns():
    for name in FILES:
        assert ast.get_docstring(ast.parse(source(name))), name


def what_only_some_workers_need_is_not_imported_by_all():
    """Each module costs every start of a worker about a tenth of a millisecond."""
    source = "import sys, snakepit.worker, snakepit.loader, snakepit.serial.loop; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=SDK, check=True)
    ours = {name.partition("snakepit.")[2] for name in done.stdout.split() if name.startswith("snakepit.")}
    lazy = {"commands.signature", "error", "session", "serial.batch", "serial.map", "serial.stream"}
    lazy |= {"transport.spans", "transport.tools"}
    assert "serial.wait" in ours and not ours & lazy
    assert not {name for name in ours if name.partition(".")[0] in ("concurrent", "grpc")}


def a_package_imports_nothing():
    """Whoever imports one of its modules would pay for it."""
    for name in FILES:
        if name.endswith("/__init__.py"):
            assert len(ast.parse(source(name)).body) == 1, name


def the_version_is_the_workspaces():
    with open(os.path.join(ROOT, "Cargo.toml")) as file:
        version = re.search(r'\[workspace\.package\].*?^version = "([^"]+)"', file.read(), re.S | re.M).group(1)
    assert snakepit.__version__ == version


def the_types_hold_under_mypy_strict():
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", os.path.join(SDK, "pyproject.toml")],
                          capture_output=True, text=True, cwd=SDK)
    assert done.returncode == 0, done.stdout


def the_types_reach_the_users_code(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "worker.py").write_text(
        "import snakepit\n"
        "from typing import Iterator\n\n"
        "@snakepit.command\n"
        "def add(a: int, b: int) -> int:\n"
        "    context = snakepit.context()\n"
        "    context.progress(0.5, 'half')\n"
        "    if context.session is not None:\n"
        "        context.session.store['a'] = context.session.local.get('b')\n"
        "    return a + b\n\n"
        "@snakepit.command(name='other')\n"
        "def count(n: int) -> Iterator[int]:\n"
        "    yield from range(n)\n\n"
        "@snakepit.on_start\n"
        "def begin() -> None: ...\n\n"
        "total: int = add(1, 2) + sum(count(3))\n"
        "add('x', 2)  # type: ignore[arg-type]\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "worker.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": SDK})
    assert done.returncode == 0, done.stdout


def what_is_exported_exists():
    for name in snakepit.__all__:
        assert hasattr(snakepit, name)


def a_decorated_function_stays_a_function():
    def add(a, b):
        return a + b

    assert snakepit.command(add) is add
    assert snakepit.command(name="other")(add)(1, 2) == 3
    with pytest.raises(snakepit.NoCall):
        snakepit.context()
