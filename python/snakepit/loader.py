"""Loading the worker's code: a file, loaded like a script, or a module.

Owns the state of `sys.path` and `sys.modules` that the worker's code finds.
"""

import os
import sys

from .commands.registry import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def load(worker: str) -> "ModuleType":
    """Imports the worker, so that another import of its name finds the same module."""
    registry.module = _load(worker)
    return registry.module  # type: ignore[no-any-return]


def _load(worker: str) -> "ModuleType":
    if worker.endswith(".py") or os.sep in worker:
        return _load_file(worker)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    __import__(worker)
    return sys.modules[worker]


def _load_file(worker: str) -> "ModuleType":
    from _frozen_importlib import module_from_spec  # importlib.util would import half the standard library
    from _frozen_importlib_external import spec_from_file_location

    path = os.path.abspath(worker)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no worker file {path}")
    directory = os.path.dirname(path)
    if sys.path and sys.path[0] in ("", os.getcwd()):
        sys.path[0] = directory  # `python -m` puts the working directory there; a script has its own directory instead
    else:
        sys.path.insert(0, directory)
    name = os.path.basename(path)
    if name.endswith(".py"):
        name = name[:-3]
    if name == "snakepit":
        raise ImportError(f"the worker file {path} has the name of the SDK; `import snakepit` would find it. Rename it")
    if name in sys.modules or name in sys.builtin_module_names:
        name = f"snakepit_worker_{name}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a file of Python source; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Like a script, it is compiled at each start. A compiled file counts as current if the second and the size of
        # the file are the same, so a reload right after a change would bring the old code.
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
