"""Tools of the host, nested calls, sessions, and the rest of a context."""

import pytest
from harness import Worker

SOURCE = """
    import snakepit, time

    @snakepit.command
    def ask(x):
        return snakepit.context().host.call("lookup", key=x)

    @snakepit.command
    def ask_by_position():
        return snakepit.context().host.call("lookup", 1, b"two" * 6000)

    @snakepit.command
    def ask_badly():
        try:
            snakepit.context().host.call("lookup", x={"y": [object()]})
        except snakepit.BadValue as error:
            return error.path

    @snakepit.command
    def ask_both():
        try:
            snakepit.context().host.call("lookup", 1, x=2)
        except TypeError as error:
            return str(error)

    @snakepit.command
    def catches():
        try:
            snakepit.context().host.call("lookup")
        except snakepit.HostError as error:
            return [error.tool, error.kind, error.type, error.message]

    @snakepit.command
    def total():
        return sum(snakepit.context().host.stream("rows", 5))

    @snakepit.command
    def lengths():
        return [len(item) for item in snakepit.context().host.stream("blobs")]

    @snakepit.command
    def first():
        for item in snakepit.context().host.stream("rows"):
            return item

    @snakepit.command
    def inner(x):
        return [x, snakepit.context().call_id]

    @snakepit.command
    def inner_asks(x):
        return [snakepit.context().host.call("deeper", x=x), snakepit.context().call_id]

    @snakepit.command
    def info():
        context = snakepit.context()
        context.log("warning", "a line", rows=3, raw=b"x")
        context.progress(0.25)
        context.progress(None, "text")
        context.telemetry("rows", 5, unit="1")
        return [context.call_id, context.session_id, context.session is None, context.metadata, context.cancelled,
                context.deadline is None or 0 < context.deadline - time.monotonic() <= 60,
                context.remaining() is None or 0 < context.remaining() <= 60]

    @snakepit.command
    def from_a_thread():
        import threading
        context = snakepit.context()
        found = []

        def work():
            context.log("info", "from a thread")
            found.append(context.cancelled)
            try:
                found.append(context.host.call("t"))
            except RuntimeError as error:
                found.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found

    @snakepit.command
    def bad_level():
        try:
            snakepit.context().log("loud", "x")
        except ValueError as error:
            return str(error)

    @snakepit.command
    def remember(key, value):
        session = snakepit.context().session
        session.local[key] = value
        return sorted(session.local)

    @snakepit.command
    def store():
        store = snakepit.context().session.store
        store["a"] = [1, b"x"]
        store.set("n", None)
        found = [store["a"], store.get("missing", 7), store["n"], "a" in store, sorted(store), len(store)]
        try:
            store["missing"]
        except KeyError as error:
            found.append(str(error))
        del store["a"]
        found.append(store.pop("a", "gone"))
        return found

    @snakepit.command
    def fill():
        store = snakepit.context().session.store
        store["a"] = 1
        try:
            store["a"] = bytes(20000)
        except snakepit.HostError as error:
            return [error.tool, error.message, store["a"], store.get("b")]

    ended = []

    @snakepit.on_session_end
    def over(session):
        ended.append([session.id, dict(session.local)])

    @snakepit.command
    def endings():
        return ended

    @snakepit.health
    def well():
        return {"ended": len(ended)}

    try:
        snakepit.context()
    except snakepit.NoCall as error:
        outside = str(error)

    @snakepit.command
    def no_call():
        return outside
"""
ASYNC = """
    @snakepit.command
    async def aask(x):
        return await snakepit.context().host.call("lookup", key=x)

    @snakepit.command
    async def atotal():
        return sum([item async for item in snakepit.context().host.stream("rows", 5)])

    @snakepit.command
    async def alengths():
        return [len(item) async for item in snakepit.context().host.stream("blobs")]

    @snakepit.command
    async def acatches():
        try:
            await snakepit.context().host.call("lookup")
        except snakepit.HostError as error:
            return [error.tool, error.kind, error.type, error.message]

    @snakepit.command
    async def astore():
        store = snakepit.context().session.store
        await store.set("a", 1)
        try:
            store["a"]
        except TypeError as error:
            problem = str(error)
        return [await store.get("a"), await store.get("b", 2), await store.keys(), await store.delete("a"), problem]

    @snakepit.command
    async def afill():
        store = snakepit.context().session.store
        await store.set("a", 1)
        try:
            await store.set("a", bytes(20000))
        except snakepit.HostError as error:
            return [error.tool, error.message, await store.get("a"), await store.get("b")]
"""


@pytest.fixture(scope="module", params=["serial", "concurrent", "async"])
def worker(request):
    source = SOURCE + ASYNC if request.param == "async" else SOURCE
    with Worker(source, concurrency=2 if request.param == "concurrent" else 1) as running:
        running.kind = request.param
        running.ready()
        yield running


def flavours(worker, name):
    return [name, "a" + name] if worker.kind == "async" else [name]


def a_tool_of_the_host_is_called_and_answers(worker):
    for name in flavours(worker, "ask"):
        call = worker.start(name, x="k")
        asked = worker.expect("HOST_CALL", call).value
        assert asked[1:] == ["lookup", {"key": "k"}]
        worker.send("HOST_RESULT", call, [asked[0], {"found": b"x" * 20000}])
        assert worker.expect("RESULT", call).value == {"found": b"x" * 20000}


def the_arguments_of_a_tool_go_by_position_or_by_name(worker):
    call = worker.start("ask_by_position")
    asked = worker.expect("HOST_CALL", call)
    assert asked.value[1:] == ["lookup", [1, b"two" * 6000]]
    assert asked.flags == 1
    worker.send("HOST_RESULT", call, [asked.value[0], None])
    worker.expect("RESULT", call)
    assert "not both" in worker.call("ask_both")
    assert worker.call("ask_badly") == "args.x.y[0]"


def a_failed_tool_is_an_exception_with_its_type_and_message(worker):
    error = {"kind": "exception", "type": "NotFound", "message": "no such key"}
    for name in flavours(worker, "catches"):
        call = worker.start(name)
        asked = worker.expect("HOST_CALL", call).value
        worker.send("HOST_ERROR", call, [asked[0], error])
        assert worker.expect("RESULT", call).value == ["lookup", "exception", "NotFound", "no such key"]
    call = worker.start("ask", x=1)
    asked = worker.expect("HOST_CALL", call).value
    worker.send("HOST_ERROR", call, [asked[0], error])
    uncaught = worker.expect("ERROR", call).value
    assert uncaught["type"] == "snakepit.HostError"
    assert "NotFound: no such key" in uncaught["message"]


def a_tool_can_stream_and_gets_credit_back(worker):
    for name in flavours(worker, "total"):
        call = worker.start(name)
        number, tool, args, options = worker.expect("HOST_CALL", call).value
        assert (tool, args) == ("rows", [5])
        credit, room = options["stream"]
        sent = 0
        for item in range(300):
            if sent == credit:
                more = worker.expect("HOST_CREDIT", call).value
                assert more[0] == number
                # For each item: the array, and two small numbers of one to three bytes.
                assert more[1] * 3 <= more[2] <= more[1] * 5
                credit += more[1]
            worker.send("HOST_ITEM", call, [number, item])
            sent += 1
        worker.send("HOST_END", call, [number])
        frame = worker.receive()
        while frame.kind == "HOST_CREDIT":
            frame = worker.receive()
        assert (frame.kind, frame.value) == ("RESULT", sum(range(300)))


def a_tool_that_streams_large_items_gets_its_bytes_back(worker):
    for name in flavours(worker, "lengths"):
        call = worker.start(name)
        number, _, _, options = worker.expect("HOST_CALL", call).value
        items, room = options["stream"]
        size = room // 4
        left = room
        for _ in range(20):
            while left <= 0:
                assert (more := worker.expect("HOST_CREDIT", call).value)[0] == number
                left += more[2]
            frame = worker.frame("HOST_ITEM", call, [number, bytes(size)])
            left -= len(frame) - 16
            worker.send_bytes(frame)
        worker.send("HOST_END", call, [number])
        while (frame := worker.receive()).kind == "HOST_CREDIT":
            left += frame.value[2]
        assert (frame.kind, frame.value) == ("RESULT", [size] * 20)
        # Everything was given back, except for at most the last half.
        assert room // 2 < left <= room


def a_stream_of_a_tool_that_is_left_early_is_cancelled(worker):
    call = worker.start("first")
    number = worker.expect("HOST_CALL", call).value[0]
    worker.send("HOST_ITEM", call, [number, "one"])
    assert worker.expect("HOST_CANCEL", call).value == [number]
    assert worker.expect("RESULT", call).value == "one"
    worker.send("HOST_ITEM", call, [number, "late"])
    assert worker.call("no_call")


def a_nested_call_is_served_while_the_outer_one_waits(worker):
    """Every thread waits in a tool of the host, and nested calls are still served, three deep."""
    outers = [worker.start("ask", x=n) for n in range(2 if worker.kind == "concurrent" else 1)]
    asked = {}
    for _ in outers:
        frame = worker.expect("HOST_CALL")
        asked[frame.call] = frame.value[0]
    deeper = worker.start("inner_asks", x=1, options={"nested": outers[0]})
    number = worker.expect("HOST_CALL", deeper).value[0]
    deepest = worker.start("inner", x=2, options={"nested": deeper})
    assert worker.expect("RESULT", deepest).value == [2, deepest]
    worker.send("HOST_RESULT", deeper, [number, "deep"])
    assert worker.expect("RESULT", deeper).value == ["deep", deeper]
    for call, number in asked.items():
        worker.send("HOST_RESULT", call, [number, "done"])
        assert worker.expect("RESULT", call).value == "done"


def a_call_that_is_not_nested_waits_its_turn(worker):
    if worker.kind == "concurrent":
        pytest.skip("there is another thread for it")
    outer = worker.start("ask", x=1)
    number = worker.expect("HOST_CALL", outer).value[0]
    following = worker.start("inner", x="not nested")
    worker.send("PING", 0, "p")
    worker.expect("PONG")
    worker.send("HOST_RESULT", outer, [number, 1])
    worker.expect("RESULT", outer)
    assert worker.expect("RESULT", following).value == ["not nested", following]


def a_context_knows_its_call(worker):
    options = {"session": "s-1", "metadata": {"user": "ann"}}
    for given, deadline in ((None, None), (options, 60000)):
        call = worker.start("info", options=given, deadline=deadline)
        log = worker.expect("LOG", call).value
        assert log == ["warning", "a line", {"rows": 3, "raw": b"x"}]
        assert worker.expect("PROGRESS", call).value == [0.25, None]
        assert worker.expect("PROGRESS", call).value == [None, "text"]
        assert worker.expect("TELEMETRY", call).value == {"name": "rows", "value": 5, "unit": "1"}
        answer = worker.expect("RESULT", call).value
        assert answer == [call, given and "s-1", given is None, given and {"user": "ann"} or {}, False, True, True]
    assert "not one of" in worker.call("bad_level")


def a_thread_of_the_users_own_may_use_the_context(worker):
    call = worker.start("from_a_thread")
    worker.expect("LOG", call)
    if worker.kind == "serial":
        found = worker.expect("RESULT", call).value
        assert found[0] is False and "only the thread that runs the call" in found[1]
    else:
        number = worker.expect("HOST_CALL", call).value[0]
        worker.send("HOST_RESULT", call, [number, "fine"])
        assert worker.expect("RESULT", call).value == [False, "fine"]


def no_context_is_there_outside_a_call(worker):
    assert "while a command runs" in worker.call("no_call")


def a_session_has_a_dict_in_the_worker_until_it_ends(worker):
    options = {"session": "local-1"}
    assert worker.call("remember", key="a", value=1, options=options) == ["a"]
    assert worker.call("remember", key="b", value=2, options=options) == ["a", "b"]
    assert worker.call("remember", key="c", value=3, options={"session": "other"}) == ["c"]
    assert worker.call("snakepit.session_end", session="local-1") is None
    assert worker.call("endings")[-1] == ["local-1", {"a": 1, "b": 2}]
    assert worker.call("remember", key="z", value=1, options=options) == ["z"]


def serve_store(worker, call):
    """Acts as the host's session store until the call is answered."""
    kept = {}
    while True:
        frame = worker.receive()
        if frame.kind != "HOST_CALL":
            assert frame.kind == "RESULT", frame
            return frame.value
        number, tool, args = frame.value
        assert args.pop("session") == "s-9"
        if tool == "snakepit.session.set" and len(str(args["value"])) > 10000:
            full = "session s-9 would keep 20010 bytes, and 10000 is the limit"
            worker.send("HOST_ERROR", call, [number, {"kind": "exception", "message": full}])
            continue
        answer = {
            "snakepit.session.get": lambda key: kept.get(key),
            "snakepit.session.set": lambda key, value: kept.update({key: value}),
            "snakepit.session.delete": lambda key: kept.pop(key, None) is not None,
            "snakepit.session.keys": lambda: list(kept),
        }[tool](**args)
        worker.send("HOST_RESULT", call, [number, answer])


def a_session_store_lives_in_the_host(worker):
    call = worker.start("store", options={"session": "s-9"})
    assert serve_store(worker, call) == [[1, b"x"], 7, None, True, ["a", "n"], 2, "'missing'", "gone"]


def a_session_store_that_is_full_raises_what_the_host_says_and_serves_on(worker):
    call = worker.start("afill" if worker.kind == "async" else "fill", options={"session": "s-9"})
    tool, message, kept, missing = serve_store(worker, call)
    assert (tool, kept, missing) == ("snakepit.session.set", 1, None)
    assert "20010 bytes, and 10000 is the limit" in message


def a_session_store_is_awaited_in_an_async_command(worker):
    if worker.kind != "async":
        pytest.skip("async commands only")
    call = worker.start("astore", options={"session": "s-9"})
    *answer, problem = serve_store(worker, call)
    assert answer == [1, 2, ["a"], True]
    assert "await" in problem


def the_engines_commands_are_answered(worker):
    assert set(worker.call("snakepit.health")) == {"ended"}
    assert worker.call("snakepit.something_new", x=1) is None


def what_is_not_well_says_so():
    source = """
        import snakepit

        @snakepit.health
        def broken():
            raise RuntimeError("no disk")
    """
    with Worker(source) as running:
        running.ready()
        assert running.error("snakepit.health")["message"] == "no disk"
    with Worker("import snakepit") as running:
        running.ready()
        assert running.call("snakepit.health") is None
        assert running.call("snakepit.session_end", session="x") is None
