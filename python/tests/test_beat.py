"""The heartbeat: requested through a pipe, answered on the slate, as long as Python code can run."""

import os
import select
import signal

import pytest
from harness import CANCEL_SIGNAL, Worker, until

SOURCE = """
    import ctypes
    import os
    import threading
    import time

    import snakepit

    @snakepit.command
    def sleep(seconds):
        snakepit.context().log("info", "begun")
        time.sleep(seconds)

    @snakepit.command
    def spin(seconds):
        snakepit.context().log("info", "begun")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    @snakepit.command
    def hold_the_gil(path, seconds):
        ctypes.PyDLL(None).system(f"touch '{path}'; sleep {seconds}".encode())

    @snakepit.command
    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(len(os.listdir("/proc/self/task")) + 10)
        return os.WEXITSTATUS(os.waitpid(pid, 0)[1])

    @snakepit.command
    def python_threads():
        return threading.active_count()

    @snakepit.command
    def echo(x):
        return x
"""


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("command", ["sleep", "spin"])
def a_worker_beats_while_python_code_waits_or_runs(command, concurrency):
    with Worker(SOURCE, beat=True, concurrency=concurrency) as worker:
        worker.ready()
        assert worker.beats() == 0
        call = worker.start(command, seconds=600)
        worker.expect("LOG", call)
        for count in range(1, 6):
            worker.ask_beat()
            until(lambda: worker.beats() == count)


def a_worker_does_not_beat_while_c_code_holds_the_gil_and_then_answers_once(tmp_path):
    with Worker(SOURCE, beat=True) as worker:
        worker.ready()
        call = worker.start("hold_the_gil", path=str(tmp_path / "held"), seconds=1)
        until((tmp_path / "held").exists)
        for _ in range(5):
            worker.ask_beat()
        # Only the answer may come now: the heartbeat thread had no chance to run before.
        assert not select.select([worker.socket], [], [], 0.3)[0]
        assert worker.beats() == 0
        worker.expect("RESULT", call)
        until(lambda: worker.beats() > 0)
        before = worker.beats()
        assert before <= 2, "questions that waited together have one answer"
        worker.ask_beat()
        until(lambda: worker.beats() > before)


def a_worker_without_the_slate_does_not_beat():
    with Worker(SOURCE, env={"SNAKEPIT_BEAT_FD": "0"}) as worker:
        assert worker.ready()["features"] == []
        assert len(os.listdir(f"/proc/{worker.process.pid}/task")) == 1


def a_closed_pipe_ends_the_beat_and_not_the_worker():
    with Worker(SOURCE, beat=True) as worker:
        worker.ready()
        assert worker.call("python_threads") == 1, "it is no thread of the module threading"
        os.close(worker.beat)
        worker.beat = None
        until(lambda: len(os.listdir(f"/proc/{worker.process.pid}/task")) == 1)
        assert worker.call("echo", x=1) == 1


def the_beat_does_not_delay_the_end():
    with Worker(SOURCE, beat=True) as worker:
        worker.ready()
        worker.ask_beat()
        until(lambda: worker.beats() == 1)
        worker.drain()
        assert worker.wait() == 0
        assert worker.errors() == ""


def signals_go_to_the_main_thread():
    with Worker(SOURCE, beat=True) as worker:
        worker.ready()
        tasks = f"/proc/{worker.process.pid}/task"
        other = next(task for task in os.listdir(tasks) if int(task) != worker.process.pid)
        with open(f"{tasks}/{other}/status") as status:
            blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
        with open(f"{tasks}/{worker.process.pid}/status") as status:
            own = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, CANCEL_SIGNAL):
            assert blocked >> (number - 1) & 1 and not own >> (number - 1) & 1


@pytest.mark.parametrize("concurrency", [1, 2])
def a_fork_is_not_disturbed_and_says_nothing(concurrency):
    with Worker(SOURCE, beat=True, concurrency=concurrency, env={"PYTHONWARNINGS": ""}) as worker:
        worker.ready()
        assert worker.call("fork") == 11, "the child has one thread"
        worker.ask_beat()
        until(lambda: worker.beats() == 1)
        worker.drain()
        assert worker.wait() == 0
        assert worker.errors() == "", "by default no warning about threads is shown"
