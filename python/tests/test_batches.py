"""Commands that take many calls at a time, as lists."""

import textwrap

import pytest
from harness import Worker

SOURCE = """
    import functools, os
    import snakepit

    runs = []

    @snakepit.command
    def take_runs():
        taken = list(runs)
        runs.clear()
        return taken

    def noted(function):
        @functools.wraps(function)
        def inner(*args, **named):
            runs.append(len((args or list(named.values()))[0]))
            return function(*args, **named)
        return inner

    @snakepit.command(batch=4, window="2ms")
    @noted
    def add(a, b=10, *, c=100):
        return [x + y + z for x, y, z in zip(a, b, c)]

    @snakepit.command(batch=4)
    @noted
    def pos(a, b=2, /):
        return [[x, y] for x, y in zip(a, b)]

    @snakepit.command(batch=4, window=0.5)
    @noted
    def own(x):
        return [ValueError(f"not {n}") if n < 0 else n for n in x]

    @snakepit.command(batch=4)
    @noted
    def poison(x: list):
        if -1 in x:
            raise RuntimeError("poison")
        return x

    @snakepit.command(batch=4)
    def wrong(what):
        return {"text": "text", "none": None, "tuple": tuple(what), "longer": what * 2}[what[0]]

    @snakepit.command(batch=4)
    def unsendable(x):
        return [{"a": [object()]} if n == 2 else n for n in x]

    @snakepit.command(batch=4)
    def wait(x):
        snakepit.context().log("info", "waiting")
        while True:
            pass
"""
ASYNC = SOURCE.replace("    def add(", "    def _add(").replace("    @snakepit.command(batch=4, window=\"2ms\")\n    @noted\n", "") + """
    import asyncio

    @snakepit.command(batch=4, window="2ms")
    async def add(a, b=10, *, c=100):
        runs.append(len(a))
        await asyncio.sleep(0)
        return [x + y + z for x, y, z in zip(a, b, c)]
"""


@pytest.fixture(scope="module", params=[(SOURCE, 1), (SOURCE, 3), (ASYNC, 3)], ids=["serial", "threads", "async"])
def worker(request):
    source, concurrency = request.param
    with Worker(source, concurrency=concurrency) as running:
        running.announced = running.ready()
        yield running


def many(worker, command, *calls, deadline=None):
    worker.next_call += 1
    worker.send("CALLS", worker.next_call, [command, list(calls), deadline])
    return worker.expect("RESULTS", worker.next_call).value


def good(entries):
    assert all(well for well, _ in entries), entries
    return [value for _, value in entries]


def what_is_gathered_is_announced(worker):
    batches = worker.announced["batches"]
    assert batches["add"] == {"size": 4, "window_us": 2000}
    assert batches["own"] == {"size": 4, "window_us": 500000}
    assert batches["pos"] == {"size": 4, "window_us": 2000}
    assert "take_runs" not in batches


def a_worker_without_batches_announces_none():
    with Worker("import snakepit\n@snakepit.command\ndef f(): pass\n") as running:
        assert "batches" not in running.ready()


def each_call_is_an_entry_of_the_lists_with_defaults_filled_in(worker):
    worker.call("take_runs")
    calls = [{"a": 1}, {"a": 2, "b": 3}, [3], [4, 5], 5, {"c": 0, "b": 0, "a": 6}]
    assert good(many(worker, "add", *calls)) == [111, 105, 113, 109, 115, 6]
    assert worker.call("take_runs") == [4, 2]
    assert good(many(worker, "pos", [1], {"a": 1, "b": 1}, 7)) == [[1, 2], [1, 1], [7, 2]]


def a_call_by_itself_is_a_batch_of_one(worker):
    worker.call("take_runs")
    assert worker.call("add", a=1) == worker.call("add", 1) == 111
    assert worker.call("add", a=1, b=2, c=3) == 6
    assert worker.call("take_runs") == [1, 1, 1]
    assert "not -1" in worker.error("own", -1)["message"]


def what_does_not_fit_fails_its_call_alone(worker):
    entries = many(worker, "add", {"a": 1}, {}, {"a": 1, "z": 1}, {"a": 2})
    assert [well for well, _ in entries] == [True, False, False, True]
    assert [entry["kind"] for well, entry in entries if not well] == ["bad_argument"] * 2
    assert worker.error("add")["parameter"] == "a"
    assert worker.error("add", z=1, a=1)["parameter"] == "z"


def an_exception_among_the_results_is_its_calls_own(worker):
    entries = many(worker, "own", 1, -2, 3)
    assert entries[0] == [True, 1] and entries[2] == [True, 3]
    assert entries[1][1]["type"] == "ValueError" and entries[1][1]["message"] == "not -2"


def what_raises_for_all_is_run_again_call_by_call(worker):
    worker.call("take_runs")
    entries = many(worker, "poison", 0, 1, 2, 3, 4, -1, 6)
    assert [well for well, _ in entries] == [True] * 5 + [False, True]
    assert entries[5][1]["message"] == "poison"
    assert worker.call("take_runs") == [4, 3, 1, 1, 1]


@pytest.mark.parametrize("what, words", [("text", "must return a list, one result per call, not str"),
                                         ("none", "not NoneType"), ("tuple", "not tuple"),
                                         ("longer", "was given 2 calls and returned 4 results")])
def a_result_of_another_shape_fails_all_and_says_so(worker, what, words):
    entries = many(worker, "wrong", what, what)
    assert all(words in error["message"] and not well for well, error in entries), entries
    assert "batch command 'wrong'" in worker.error("wrong", what)["message"]


def a_result_that_cannot_be_sent_fails_alone_and_names_its_path(worker):
    entries = many(worker, "unsendable", 1, 2, 3)
    assert [well for well, _ in entries] == [True, False, True]
    assert entries[1][1]["path"] == "result.a[0]"


def a_batch_whose_time_is_over_is_not_started(worker):
    worker.call("take_runs")
    entries = many(worker, "own", 1, 2, deadline=0)
    assert [error["kind"] for _, error in entries] == ["deadline"] * 2
    assert worker.call("take_runs") == []


@pytest.mark.parametrize("concurrency", [1, 3])
def a_cancelled_batch_is_not_run_again(concurrency):
    with Worker(SOURCE, concurrency=concurrency) as running:
        ready = running.ready()
        running.send("CALLS", 5, ["wait", [1, 2], None])
        running.expect("LOG", 5)
        running.send("CANCEL", 5, 2)
        if "cancel" in ready["signals"]:
            running.signal(ready["signals"]["cancel"])
        entries = running.expect("RESULTS", 5).value
        assert [error["kind"] for _, error in entries] == ["cancelled"] * 2


@pytest.mark.parametrize("decorator, function, words", [
    ("batch=0", "def f(x): pass", "from 1 to 65536, not 0"),
    ("batch=70000", "def f(x): pass", "from 1 to 65536"),
    ("batch=True", "def f(x): pass", "not bool"),
    ("batch='8'", "def f(x): pass", "not str"),
    ("batch=8, window='soon'", "def f(x): pass", "not 'soon'"),
    ("batch=8, window='5'", "def f(x): pass", "not '5'"),
    ("batch=8, window=-1", "def f(x): pass", "from 0 to 60 s"),
    ("batch=8, window=float('nan')", "def f(x): pass", "from 0 to 60 s"),
    ("batch=8, window='2h'", "def f(x): pass", "window is a time"),
    ("batch=8, window=[]", "def f(x): pass", "window is a time"),
    ("window='2ms'", "def f(x): pass", "for commands with a batch"),
    ("batch=8", "def f(x): yield x", "a generator cannot have a batch"),
    ("batch=8", "async def f(x): yield x", "a generator cannot have a batch"),
    ("batch=8", "def f(*x): pass", "not *args or **kwargs"),
    ("batch=8", "def f(**x): pass", "not *args or **kwargs"),
    ("batch=8", "def f(): pass", "needs a parameter"),
])
def a_bad_batch_is_an_error_at_import(decorator, function, words):
    source = f"import snakepit\n@snakepit.command({decorator})\n{textwrap.dedent(function)}\n"
    with Worker(source) as running:
        error = running.expect("ERROR", 0).value
        assert error["kind"] == "start" and words in error["message"], error
        assert "command 'f'" in error["message"]


def a_window_is_written_in_several_ways():
    source = "import snakepit\n" + "".join(
        f"@snakepit.command(batch=2, window={window!r})\ndef f{number}(x): return x\n"
        for number, window in enumerate(["250us", "250µs", "1.5ms", "2s", "0s", 0, 0.003, 1])
    )
    with Worker(source) as running:
        batches = running.ready()["batches"]
    assert [batches[f"f{number}"]["window_us"] for number in range(8)] == [250, 250, 1500, 2000000, 0, 0, 3000, 1000000]
