"""Async calls: tasks of one event loop in the main thread, which also reads the socket.

Owns everything that needs asyncio, which is imported only for workers with async commands. All of this file runs in the
loop's thread unless noted otherwise.
"""

import asyncio
import threading
from _contextvars import copy_context
from collections import deque
from time import monotonic

from ..context import Cancelled, HostError
from ..frame import END, ERROR, HOST_CANCEL, HOST_CREDIT, HOST_ERROR, HOST_ITEM, RESULT, word_of
from ..message import ENOUGH_BYTES, ENOUGH_ITEMS, Results
from ..transport.spans import begin, begin_turn, end_turn
from .loop import current_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AsyncIterator, Awaitable, Deque, List, Optional

    from ..commands.registry import Command
    from .call import Running
    from .loop import Concurrent

_WAKE = (0, None, 0)
# How long answers wait for those of other calls that are known to be quick.
HELD = 0.0005


class Tasks:
    """The event loop of a worker."""

    def __init__(self, concurrent: "Concurrent") -> None:
        self.concurrent = concurrent
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.thread = threading.get_ident()
        self.lost = False
        self.sends = False
        self.held = 0.0
        # The context variables with which a call begins.
        self.base = copy_context()
        concurrent.connection.gone = self._gone
        concurrent.life.calls_with_tasks = self._of_calls
        concurrent.life.call_of_task = self._call_of

    def run(self) -> None:
        """Runs until the host drains this worker or is gone."""
        concurrent, loop = self.concurrent, self.loop
        self.base = copy_context()
        descriptor = concurrent.connection.descriptor()
        concurrent.wake = self._wake
        if descriptor is None:
            loop.call_soon(self._look)
        else:
            loop.add_reader(descriptor, self._readable)
            loop.call_soon(self._readable)  # for what came together with HELLO
        loop.run_forever()
        if descriptor is not None:
            loop.remove_reader(descriptor)
        if self.lost:
            concurrent.life.gone()

    def _readable(self) -> None:
        self.concurrent.read_what_is_there()
        self._look()

    def _look(self) -> None:
        if self.lost or (self.concurrent.draining and self.concurrent.is_idle()):
            self.loop.stop()

    def _wake(self) -> None:
        """Wakes the loop. Called in any thread."""
        self.loop.call_soon_threadsafe(self._look)

    def _gone(self) -> None:
        """Records that the host is gone. May be called in any thread."""
        if threading.get_ident() != self.thread or not self.loop.is_running():
            self.concurrent.life.gone()
        self.lost = True
        self.loop.stop()

    def finish(self, answer: "Awaitable[Any]") -> "Any":
        """Waits for the result of an async hook. Called before and after the loop runs, or in another thread."""

        async def whole() -> "Any":
            return await answer

        if self.loop.is_running():
            return asyncio.run_coroutine_threadsafe(whole(), self.loop).result()
        return self.loop.run_until_complete(whole())

    def is_inside(self, running: "Running") -> bool:
        """Reports whether the caller is in the loop's thread, where waiting would stop everything. Called in any
        thread."""
        return running.is_async and threading.get_ident() == self.thread

    def send_soon(self) -> None:
        """Sends answers together after everything that is ready has had its turn, or at once if that may take long."""
        if self.concurrent.hold() and not self.sends:
            self.sends = True
            self.held = monotonic()
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        # A call that waited gets its turn only now, and its answer may go with the others.
        if self.concurrent.calls and monotonic() - self.held < HELD and self.concurrent.hold():
            self.loop.call_soon(self._send)
            return
        self.sends = False
        self.concurrent.connection.flush()

    # --- for the stacks of tasks; called at any moment of this thread ---

    def _of_calls(self) -> "List[Any]":
        tasks = [running.task for running in list(self.concurrent.calls.values()) if running.task is not None]
        return [(each.task, each.running.call, each.running.name) for each in tasks if each.task is not None]

    def _call_of(self, task: "Any") -> "Optional[int]":
        """Returns the call in whose context a task was begun. Before Python 3.12, tasks do not reveal their context."""
        if not hasattr(task, "get_context"):
            return None
        running = task.get_context().get(current_call)
        return None if running is None else running.call

    def launch(self, running: "Running") -> None:
        """Starts an async call. Called in any thread."""
        running.task = Task(self, running)
        if threading.get_ident() == self.thread:
            # A fresh context: the current one may be that of the previous call, whose end started this one.
            self.base.copy().run(running.task.start)
        else:
            self.loop.call_soon_threadsafe(running.task.start, context=self.base.copy())

    # --- the host's tools ---

    async def host_call(self, running: "Running", tool: str, args: "Any") -> "Any":
        answers = Answers(self.loop)
        number, message = running.prepare(tool, args, None, answers.put)
        kind = None
        is_sent = False
        try:
            if not self.concurrent.tools.enter(running, number, len(message), lambda: self._give_turn(answers)):
                await answers.get()
            running.ask(message)
            is_sent = True
            kind, value, _ = await answers.get()
        finally:
            try:
                # Before `forget` admits the next tool call: the host must hear of this end first.
                if is_sent and kind is None:
                    running.send(HOST_CANCEL, [number])
            finally:
                running.forget(number)
        if kind == HOST_ERROR:
            raise HostError(tool, value)
        return value

    def _give_turn(self, answers: "Answers") -> None:
        """Lets a waiting tool call go on. Called in any thread."""
        if threading.get_ident() == self.thread:
            answers.put(_WAKE)
        else:
            self.loop.call_soon_threadsafe(answers.put, _WAKE)

    async def host_stream(self, running: "Running", tool: str, args: "Any") -> "AsyncIterator[Any]":
        answers = Answers(self.loop)
        number = running.ask_for_stream(tool, args, answers.put)
        taken = size = 0
        kind = HOST_ITEM
        try:
            while True:
                kind, value, length = await answers.get()
                if kind == HOST_ERROR:
                    raise HostError(tool, value)
                if kind != HOST_ITEM:
                    return
                taken += 1
                size += length
                if taken >= ENOUGH_ITEMS or size >= ENOUGH_BYTES:
                    running.send(HOST_CREDIT, [number, taken, size])
                    taken = size = 0
                yield value
        finally:
            try:
                if kind == HOST_ITEM:
                    running.send(HOST_CANCEL, [number])
            finally:
                running.forget(number)


class Answers:
    """A queue with one reader. Both ends are in the loop's thread."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self.loop = loop
        self.items: "Deque[Any]" = deque()
        self.waiting: "Optional[asyncio.Future[None]]" = None

    def put(self, item: "Any") -> None:
        self.items.append(item)
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    async def get(self) -> "Any":
        while not self.items:
            self.waiting = self.loop.create_future()
            try:
                await self.waiting
            finally:
                self.waiting = None
        return self.items.popleft()


class Task:
    """One async call."""

    def __init__(self, tasks: Tasks, running: "Running") -> None:
        self.tasks = tasks
        self.running = running
        self.task: "Optional[asyncio.Task[None]]" = None
        self.credit: "Optional[Answers]" = None

    def start(self) -> None:
        self.task = self.tasks.loop.create_task(self._run())
        self.task.set_name(f"snakepit-call-{self.running.call}")

    def cancel(self, stage: int) -> None:
        self.wake()
        if stage >= 2 and self.task is not None:
            self.task.cancel()

    def wake(self) -> None:
        if self.credit is not None:
            self.credit.put(_WAKE)

    async def _run(self) -> None:
        running, concurrent = self.running, self.tasks.concurrent
        with concurrent.lock:
            concurrent.note_start(running)
        began = monotonic()
        current_call.set(running)
        if "trace" in running.options:
            begin(running.options)  # in the context of this task, so it ends with the task
        try:
            word, encoded = await self._answer()
        except BaseException as error:
            word, encoded = word_of(ERROR), concurrent.failure(self._reason(error))
        concurrent.answer(running.call, word, encoded)
        concurrent.took(running, monotonic() - began)
        concurrent.over(running)
        self.tasks.send_soon()

    def _reason(self, error: BaseException) -> BaseException:
        """Converts the error of a task that asyncio calls cancelled, if the caller cancelled the call."""
        if isinstance(error, asyncio.CancelledError) and self.running.stage:
            cancelled = Cancelled()
            cancelled.__traceback__ = error.__traceback__
            return cancelled
        return error

    async def _answer(self) -> "Any":
        running = self.running
        codec, limit = running.loop.codec, running.loop.connection.max_frame
        if running.is_many:
            return await self._many()
        command = running.check()
        if "stream" in running.options:
            await self._stream(command)
            return word_of(END), b""
        return word_of(RESULT), codec.encode(await command.run(running.args), "result", limit)

    async def _many(self) -> "Any":
        running = self.running
        if running.command is not None and running.command.batch:
            return Results(running.loop, running.call).of(await self._lists(running.command))
        results = running.loop.results_of(running)
        for index, args in enumerate(running.args):
            try:
                command = running.check()
                running.loop.note_input(running, index)
                results.begins(index)
                entry = results.good(await command.run(args))
            except BaseException as error:
                entry = results.bad(self._reason(error))
            results.add(entry)
        return results.last()

    async def _lists(self, command: "Command") -> "List[Any]":
        """Answers many calls of a batch command, whose function gets lists."""
        from ..commands.batch import Lists

        running = self.running
        lists = Lists(command, running.args)
        while lists.next():
            try:
                running.check()
            except BaseException as error:
                lists.refused(error)
                continue
            begun = begin_turn(running.call, running.options, lists.current)
            try:
                running.loop.note_input(running, lists.started - 1)
                lists.answered(await lists.invoke())
            except BaseException as error:
                lists.raised(self._reason(error))
            end_turn(begun)
        return lists.outcomes

    async def _stream(self, command: "Any") -> None:
        running = self.running
        self.credit = Answers(self.tasks.loop)
        running.take_first_credit()
        items = command.run(running.args)
        if not command.streams:
            await self._send(await items)
            return
        try:
            async for item in items:
                await self._send(item)
        except Cancelled as cancelled:
            try:
                await items.athrow(cancelled)
            except BaseException:  # the reason is the cancel, whatever the clean-up raises
                pass
            raise
        finally:
            await items.aclose()

    async def _send(self, item: "Any") -> None:
        running, credit = self.running, self.credit
        while credit is not None and not running.may_send() and not running.stage:
            await credit.get()
        if running.stage:
            raise Cancelled("the caller no longer wants the stream")
        running.send_item(item)
