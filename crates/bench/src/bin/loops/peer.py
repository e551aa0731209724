"""The loops of weakincentives over the same messages. `peer.py LOOP COUNT [REDIS_SOCKET]` prints how many it handled per second.

`agent` is its AgentLoop, with an adapter that adds two numbers instead of asking a model. `worker` is the bare
MailboxWorker below it, with a handler that adds and acknowledges.
"""

import logging
import sys
import threading
import time
from dataclasses import dataclass

from weakincentives.adapters.core import PromptResponse, ProviderAdapter
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.runtime import AgentLoop, AgentLoopRequest, InMemoryMailbox, Session
from weakincentives.runtime.mailbox_worker import MailboxWorker

# The library would log a line for each message.
logging.disable(logging.CRITICAL)


@dataclass(frozen=True)
class Add:
    a: int
    b: int


class Countdown:
    """Signals when all messages are handled."""

    def __init__(self, count):
        self.left = count
        self.done = threading.Event()

    def one(self):
        self.left -= 1
        if self.left == 0:
            self.done.set()


class Adder(ProviderAdapter):
    def evaluate(self, prompt, *, session, **_):
        return PromptResponse(prompt_name="add", text=str(1 + 2), output=None)


TEMPLATE = PromptTemplate(
    ns="bench",
    key="add",
    name="add",
    sections=[MarkdownSection(title="Add", key="add", template="Add two numbers.")],
)


class Agent(AgentLoop):
    body_type = AgentLoopRequest[Add]

    def __init__(self, countdown, requests):
        super().__init__(adapter=Adder(), requests=requests)
        self.countdown = countdown

    @staticmethod
    def body():
        return AgentLoopRequest(request=Add(1, 2))

    def prepare(self, request, *, experiment=None):
        return Prompt(TEMPLATE), Session()

    def finalize(self, prompt, session, output):
        self.countdown.one()
        return output


class Worker(MailboxWorker):
    body_type = Add

    def __init__(self, countdown, requests):
        super().__init__(requests=requests)
        self.countdown = countdown

    @staticmethod
    def body():
        return Add(1, 2)

    def _process_message(self, msg):
        _ = msg.body.a + msg.body.b
        msg.acknowledge()
        self.countdown.one()


def mailbox(socket, body_type):
    if socket is None:
        return InMemoryMailbox(name="bench")
    import redis
    from weakincentives.contrib.mailbox import RedisMailbox

    return RedisMailbox(name="bench", client=redis.Redis(unix_socket_path=socket), body_type=body_type)


def main():
    kind = {"agent": Agent, "worker": Worker}[sys.argv[1]]
    count = int(sys.argv[2])
    box = mailbox(sys.argv[3] if len(sys.argv) > 3 else None, kind.body_type)
    for _ in range(count):
        box.send(kind.body())
    countdown = Countdown(count)
    loop = kind(countdown, box)
    began = time.perf_counter()
    threading.Thread(target=loop.run, kwargs={"wait_time_seconds": 1}, daemon=True).start()
    if not countdown.done.wait(300):
        sys.exit("it does not finish")
    print(count / (time.perf_counter() - began))
    loop.shutdown(timeout=5)
    box.close()


main()
