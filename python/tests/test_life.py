"""How workers start and end, and what they consist of."""

import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest
from harness import SDK, Ended, Worker, until

SOURCE = """
    import snakepit, sys, os

    @snakepit.on_start
    def begin():
        print("started")

    @snakepit.on_stop
    def end():
        print("stopped")

    @snakepit.command
    def modules():
        return sorted(sys.modules)

    @snakepit.command
    def path():
        shadows = [each for each in sys.path if each.endswith("snakepit")]
        return [__name__, sys.modules[__name__].__dict__ is globals(), sys.path[0], shadows]

    @snakepit.command
    def ask():
        return snakepit.context().host.call("t")

    @snakepit.command
    def fork(how):
        pid = os.fork()
        if pid == 0:
            if how == "exit":
                sys.exit(7)
            if how == "raise":
                raise ValueError
            if how == "context":
                try:
                    snakepit.context().log("info", "from the child")
                except RuntimeError:
                    os._exit(9)
            return "from the child"
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @snakepit.command
    def descriptors():
        known = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]
        return [os.get_inheritable(fd) for fd in known if fd > 2]

    @snakepit.command
    def environment():
        return sorted(name for name in os.environ if name.startswith("SNAKEPIT") and name.endswith("FD"))

    @snakepit.command
    def echo(x):
        return x

    @snakepit.command
    def die():
        os._exit(3)

    @snakepit.command
    def say(text):
        print(text)
"""
HEAVY = {
    "inspect", "typing", "dataclasses", "traceback", "asyncio", "threading", "logging", "enum", "socket", "re",
    "collections", "functools", "contextlib", "datetime", "msgspec", "difflib", "ctypes", "importlib.util", "signal",
}


def a_worker_says_what_it_is():
    with Worker(SOURCE, slate=True, stack=True, beat=True) as worker:
        ready = worker.ready()
        assert ready["protocol"] == 1
        assert ready["pid"] == worker.process.pid
        assert "echo" in ready["commands"] and ready["commands"] == sorted(ready["commands"])
        assert ready["features"] == ["slate", "beat"]
        assert set(ready["signals"]) == {"stack", "cancel", "tasks"}
        assert ready["language"] == "python " + ".".join(map(str, sys.version_info[:3]))
    with Worker(SOURCE, slate=True) as worker:
        assert worker.ready()["features"] == ["slate"]
    with Worker(SOURCE) as worker:
        assert worker.ready()["features"] == []


def an_idle_worker_has_not_imported_what_it_does_not_need():
    with Worker(SOURCE, slate=True, stack=True, beat=True) as worker:
        worker.ready()
        loaded = set(worker.call("modules"))
    plain = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    assert not (loaded & HEAVY) - set(plain.stdout.split())


def a_serial_worker_with_one_call_in_flight_has_one_thread():
    with Worker(SOURCE) as worker:
        worker.ready()
        for i in range(700):
            worker.call("echo", x=i)
        assert len(os.listdir(f"/proc/{worker.process.pid}/task")) == 1


@pytest.mark.parametrize("start", ["file", "module"])
@pytest.mark.parametrize("given", ["file", "module"])
def a_worker_starts_either_way_and_is_loaded_once(start, given):
    files = {"worker.py": SOURCE + "\n    import other\n", "other.py": "import worker\nassert worker.__dict__['snakepit']\n"}
    argument = "worker" if given == "module" else None
    with Worker(files=files, start=start, argument=argument) as worker:
        worker.ready()
        name, same, first, shadows = worker.call("path")
        assert (name, same, shadows) == ("worker", True, [])
        assert os.path.realpath(first or worker.directory.name) == os.path.realpath(worker.directory.name)


@pytest.mark.parametrize("flags", [["-I"], ["-I", "-S"], ["-E", "-s"], ["-O"], ["-OO"], ["-B", "-u"], ["-X", "dev"]])
def a_worker_starts_under_any_flags_of_python(flags):
    with Worker(SOURCE, flags=flags) as worker:
        worker.ready()
        assert worker.call("echo", x=1) == 1
        assert worker.error("echo")["parameter"] == "x"
        worker.drain()
        assert worker.wait() == 0
        assert worker.errors() == ""


def a_worker_starts_by_a_relative_path_of_the_sdk():
    """The directory of the SDK must not stay on the path: `concurrent` and `codec` would shadow other modules."""
    source = """
        import concurrent.futures
        import snakepit

        @snakepit.command
        def where():
            return concurrent.__file__
    """
    program = os.path.join("snakepit", "__main__.py")
    with Worker(source, cwd=SDK, start=program) as worker:
        worker.ready()
        assert SDK not in worker.call("where")


def a_worker_without_standard_streams_serves(tmp_path):
    script = f'exec "{sys.executable}" "$@" >&- 2>&-'
    with Worker(SOURCE, python="/bin/sh", flags=["-c", script, "sh"]) as worker:
        worker.ready()
        assert worker.call("echo", x=1) == 1


def a_relative_file_in_another_directory_finds_its_neighbours(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour.py").write_text("value = 5\n")
    (tmp_path / "sub" / "my-worker.py").write_text(
        "import snakepit, neighbour\n@snakepit.command\ndef get(): return [neighbour.value, __name__]\n")
    for start in ("file", "module"):
        with Worker(argument="sub/my-worker.py", cwd=str(tmp_path), start=start) as worker:
            worker.ready()
            assert worker.call("get") == [5, "my-worker"]


@pytest.mark.parametrize("source, kind, words, frame", [
    ("import nope_not_there", "ModuleNotFoundError", "nope_not_there", "line 1"),
    ("import snakepit\ndef broken(:\n  pass", "SyntaxError", "", None),
    ("import snakepit\nraise ValueError('at import')", "ValueError", "at import", "line 2"),
    ("import snakepit\n@snakepit.on_start\ndef f():\n  raise OSError('no disk')", "OSError", "no disk", "in f"),
    ("import snakepit\n@snakepit.command\ndef a(): pass\n@snakepit.command(name='a')\ndef b(): pass", "ValueError", "two commands 'a'", "in <module>"),
    ("import sys; sys.exit(0)", "SystemExit", "", None),
    ("import snakepit\nsnakepit.command(lambda: 1, name='snakepit.x')", "ValueError", "the engine's", "line 2"),
])
def a_worker_that_cannot_start_says_why(source, kind, words, frame):
    with Worker(source) as worker:
        error = worker.expect("ERROR", 0).value
        assert (error["kind"], error["type"]) == ("start", kind)
        assert words in error["message"]
        if frame:
            assert frame in error["traceback"]
        assert os.path.join("python", "snakepit") not in error.get("traceback", "")
        assert "importlib" not in error.get("traceback", "")
        assert worker.wait() == 1


def a_missing_worker_is_named():
    for argument, words in (("missing.py", "no worker file"), ("missing_module", "missing_module")):
        with Worker(argument=argument) as worker:
            assert words in worker.expect("ERROR", 0).value["message"]
            assert worker.wait() == 1
    with Worker(files={"snakepit.py": "import snakepit"}, argument="snakepit.py") as worker:
        assert "Rename" in worker.expect("ERROR", 0).value["message"]


def a_worker_file_may_have_the_name_of_a_loaded_module():
    with Worker(files={"time.py": "import snakepit\n@snakepit.command\ndef f(): return 1\n"}, argument="time.py") as worker:
        worker.ready()
        assert worker.call("f") == 1


def a_program_without_a_host_explains_itself():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEPIT")}
    for arguments in ([], ["x.py"], ["a", "b"]):
        done = subprocess.run([sys.executable, os.path.join(SDK, "snakepit", "__main__.py"), *arguments],
                              capture_output=True, text=True, env=environment)
        assert done.returncode == 2
        assert "usage: python -m snakepit WORKER" in done.stderr


def a_drained_worker_finishes_says_goodbye_and_exits_well():
    with Worker(SOURCE) as worker:
        worker.ready()
        calls = [worker.start("echo", x=i) for i in range(3)]
        worker.send_empty("DRAIN")
        for call in calls:
            worker.expect("RESULT", call)
        worker.expect("BYE")
        with pytest.raises(Ended):
            worker.receive()
        assert worker.wait() == 0
        assert worker.output() == "started\nstopped\n"


LOOSE_ENDS = """
import atexit, sys, threading, snakepit
sys.stdout.reconfigure(line_buffering=False)
atexit.register(lambda: print("handler"))
done = threading.Event()
thread = threading.Thread(target=lambda: (done.wait(), print("thread")))
@snakepit.on_stop
def stop():
    done.set()
thread.start()
"""


def the_end_waits_for_threads_runs_exit_handlers_and_writes_what_is_buffered():
    with Worker(LOOSE_ENDS) as worker:
        worker.ready()
        worker.drain()
        assert worker.wait() == 0
        assert worker.output() == "thread\nhandler\n"


def a_drain_inside_a_call_waits_for_the_call():
    with Worker(SOURCE) as worker:
        worker.ready()
        call = worker.start("ask")
        number = worker.expect("HOST_CALL", call).value[0]
        following = worker.start("echo", x=1)
        worker.send_empty("DRAIN")
        worker.send("HOST_RESULT", call, [number, 1])
        worker.expect("RESULT", call)
        worker.expect("RESULT", following)
        worker.expect("BYE")
        assert worker.wait() == 0


def a_worker_whose_host_is_gone_stops_and_exits():
    with Worker(SOURCE) as worker:
        worker.ready()
        worker.socket.close()
        assert worker.wait() == 0
        assert worker.output() == "started\nstopped\n"
    with Worker(SOURCE) as worker:
        worker.ready()
        call = worker.start("ask")
        worker.expect("HOST_CALL", call)
        worker.socket.close()
        assert worker.wait() == 0


def a_hook_for_the_end_that_fails_does_not_keep_the_worker():
    with Worker("import snakepit\n@snakepit.on_stop\ndef f():\n  raise ValueError('stubborn')") as worker:
        worker.ready()
        worker.drain()
        assert worker.wait() == 0
        assert "stubborn" in worker.errors()


@pytest.mark.parametrize("how, status", [("return", 0), ("raise", 1), ("exit", 7), ("context", 9)])
@pytest.mark.parametrize("concurrency", [1, 2])
def a_forked_child_never_answers(how, status, concurrency):
    with Worker(SOURCE, concurrency=concurrency) as worker:
        worker.ready()
        assert worker.call("fork", how=how) == status
        assert worker.call("echo", x="only the parent") == "only the parent"


def the_descriptors_and_the_environment_are_kept_from_children():
    with Worker(SOURCE, slate=True, stack=True, beat=True) as worker:
        worker.ready()
        assert not any(worker.call("descriptors"))
        assert worker.call("environment") == []


def the_slate_names_the_call_that_was_started_last():
    with Worker(SOURCE, slate=True) as worker:
        worker.ready()
        for i in range(5):
            worker.call("echo", x=i)
        assert struct.unpack_from("<3Q", os.pread(worker.slate, 24, 0)) == (5, 0, 5)
        worker.send("CALLS", 6, ["echo", [[1], [2], [3]], None])
        worker.expect("RESULTS", 6)
        assert struct.unpack_from("<3Q", os.pread(worker.slate, 24, 0)) == (6, 3, 6)
        worker.send_bytes(worker.frame("CALL", 7, ["die", [], None]) + worker.frame("CALL", 8, ["echo", [1], None]))
        assert worker.wait() == 3
        assert struct.unpack_from("<3Q", os.pread(worker.slate, 24, 0)) == (7, 3, 6)


class Recorded(list):
    """A slate that records all its states."""

    def __init__(self, *numbers):
        super().__init__(numbers)
        self.states = []

    def __setitem__(self, index, number):
        super().__setitem__(index, number)
        self.states.append(tuple(self))


def a_death_between_two_marks_does_not_make_a_call_look_less_begun_than_it_is():
    from snakepit.concurrent.loop import Concurrent
    from snakepit.transport.slate import nowhere
    from snakepit.serial.map import serve_map

    slates = [Recorded(6, 3, 6), Recorded(6, 3, 6)]
    shared = SimpleNamespace(life=SimpleNamespace(slate=slates[0]), begun=1)
    Concurrent.note_start(shared, SimpleNamespace(call=7, came=2))
    Concurrent.note_start(shared, SimpleNamespace(call=5, came=1))  # a task that the loop reached later
    serial = SimpleNamespace(
        commands={},
        slate=slates[1],
        codec=SimpleNamespace(encode=None, write_small=None),
        limit=1000,
        stages={},
        arrived=0.0,
        place=nowhere(),
        connection=SimpleNamespace(post=lambda *frame: None, flush=lambda: None),
        over=lambda call: None,
    )
    serve_map(serial, 7, ["echo", [], None])
    for slate in slates:
        # Call 6 has begun three of its calls, and its answer may still be on its way.
        assert all(state[1] == 3 for state in slate.states if state[0] == 6)
        assert slate.states[-1][:2] == (7, 0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("concurrency", [1, 2])
def a_command_may_use_processes_of_its_own(method, concurrency):
    source = """
        import multiprocessing, sys
        import snakepit

        def square(x):
            return x * x

        @snakepit.command
        def squares(method):
            with multiprocessing.get_context(method).Pool(2) as pool:
                return pool.map(square, range(5))

        @snakepit.command
        def arguments():
            return sys.argv
    """
    with Worker(source, concurrency=concurrency) as worker:
        worker.ready()
        assert worker.call("squares", method=method) == [0, 1, 4, 9, 16]
        assert worker.call("arguments") == [worker.path]
        worker.drain()
        assert worker.wait() == 0


def a_print_is_a_line_at_once():
    with Worker(SOURCE) as worker:
        worker.ready()
        assert worker.process.stdout.readline() == b"started\n"
        worker.call("say", text="a line")
        assert worker.process.stdout.readline() == b"a line\n"


def a_ping_is_answered_with_its_value():
    with Worker(SOURCE) as worker:
        worker.ready()
        for value in (1, {"t": [1.5, b"x" * 20000]}):
            worker.send("PING", 0, value)
            assert worker.expect("PONG").value == value


def a_fault_of_the_host_ends_the_worker():
    with Worker(SOURCE) as worker:
        worker.ready()
        worker.send("FAULT", 0, "you are wrong")
        assert worker.wait() == 1
        assert "you are wrong" in worker.errors()


def a_host_that_does_not_begin_with_hello_is_at_fault():
    with Worker(SOURCE, hello=False) as worker:
        worker.send("PING", 0, 1)
        assert "HELLO" in worker.expect("FAULT").value
    with Worker(SOURCE, hello=False) as worker:
        worker.send("HELLO", 0, {"protocol": 2})
        assert "protocol" in worker.expect("FAULT").value


@pytest.mark.parametrize("codec", ["auto", "python", "msgspec"])
def a_codec_is_chosen_and_gives_the_same_answers(codec):
    pytest.importorskip("msgspec")
    value = {"a": [1, 2.5, None, b"x", "é"], "b": {"c": True}}
    with Worker(SOURCE, env={"SNAKEPIT_CODEC": codec}) as worker:
        worker.ready()
        assert ("msgspec" in worker.call("modules")) == (codec == "msgspec")
        for _ in range(600):
            assert worker.call("echo", x=value) == value
        assert ("msgspec" in worker.call("modules")) == (codec != "python")


def a_worker_that_imports_msgspec_itself_uses_it_at_once():
    pytest.importorskip("msgspec")
    with Worker("import snakepit, msgspec\n@snakepit.command\ndef f():\n  import sys\n  return 'snakepit.value.msgspec_codec' in sys.modules") as worker:
        worker.ready()
        assert worker.call("f") is True


def a_large_structured_value_brings_msgspec_in():
    pytest.importorskip("msgspec")
    with Worker(SOURCE) as worker:
        worker.ready()
        worker.call("echo", x=list(range(20000)))
        assert "msgspec" in worker.call("modules")


def a_large_buffer_is_given_back():
    with Worker(SOURCE) as worker:
        worker.ready()

        def resident():
            with open(f"/proc/{worker.process.pid}/statm") as file:
                return int(file.read().split()[1]) * 4096

        before = resident()
        body = bytes(50 << 20)
        assert worker.call("echo", x=body) == body
        worker.call("echo", x=1)
        until(lambda: resident() < before + (30 << 20))


def the_engines_copy_keeps_its_compiled_files_and_a_workers_files_obey(tmp_path):
    """PYTHONDONTWRITEBYTECODE applies to the worker's own files."""
    import shutil

    package = tmp_path / "snakepit"
    shutil.copytree(os.path.join(SDK, "snakepit"), package, ignore=shutil.ignore_patterns("__pycache__"))
    with Worker(
        "import helper", files={"helper.py": ""}, start=str(package / "__main__.py"), env={"PYTHONDONTWRITEBYTECODE": "1"}
    ) as worker:
        worker.ready()
        assert "__pycache__" not in os.listdir(worker.directory.name)
    folders = [package, *(each.parent for each in package.glob("*/__init__.py"))]
    assert len(folders) > 5
    for folder in folders:
        compiled = {each.name.partition(".")[0] for each in (folder / "__pycache__").glob("*.pyc")}
        assert compiled == {each.stem for each in folder.glob("*.py")}
