"""Every text with which the SDK refuses a definition, an argument, a result or a worker file.

`INSTA_UPDATE=always` rewrites error_texts.txt. Read each new text aloud: it names the thing, the place and the way out.
"""

import os
import re

from harness import CallError, Worker

from snakepit.value import decode
from snakepit.value.error import BadPayload

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "error_texts.txt")

SOURCE = """
    import dataclasses, datetime, decimal, enum, pathlib, uuid
    from typing import Dict, List, Literal, Optional, Tuple, TypedDict, Union
    import snakepit

    class Color(enum.Enum):
        RED = "red"
        BLUE = "blue"

    @dataclasses.dataclass
    class Item:
        name: str
        price: decimal.Decimal

        def __post_init__(self):
            if not self.name:
                raise ValueError("an item has a name")

    class Needs(TypedDict):
        path: pathlib.Path

    @snakepit.command
    def define(text):
        try:
            exec(text, {"snakepit": snakepit})
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    @snakepit.command
    def evaluate(text):
        return eval(text, globals())

    @snakepit.command
    def add(a: int, b: int = 0):
        return a + b

    @snakepit.command
    def nothing():
        pass

    @snakepit.command
    def data(data: bytes):
        pass

    @snakepit.command
    def either(value: Union[int, str, None] = None):
        pass

    @snakepit.command
    def numbers(numbers: List[int]):
        pass

    @snakepit.command
    def pairs(pair: Tuple[int, datetime.date] = (1, datetime.date.min), days: Optional[Dict[str, datetime.date]] = None):
        pass

    @snakepit.command
    def scalars(price: decimal.Decimal = decimal.Decimal(0), id: uuid.UUID = uuid.UUID(int=0),
                day: datetime.date = datetime.date.min, color: Color = Color.RED, mode: Literal["r", "w"] = "r",
                wait: datetime.timedelta = datetime.timedelta(0), at: datetime.time = datetime.time.min):
        pass

    @snakepit.command
    def item(item: Item = Item("pen", decimal.Decimal(1)), needs: Needs = {}):
        pass

    @snakepit.command
    def stream():
        yield 1

    @snakepit.command(batch=4)
    def batched(x):
        return {"none": None}.get(x[0], x)

    @snakepit.evaluator
    def judge(output):
        return output

    def later():
        yield 1

    async def coroutine():
        pass

    cyclic = []
    cyclic.append(cyclic)
"""

DEFINITIONS = [
    "snakepit.command(3)",
    "@snakepit.command('f')\ndef f(): pass",
    "@snakepit.command(name='snakepit.f')\ndef f(): pass",
    "@snakepit.command(name='add')\ndef f(): pass",
    "@snakepit.command(window='1ms')\ndef f(x): pass",
    "@snakepit.command(batch='4')\ndef f(x): pass",
    "@snakepit.command(batch=0)\ndef f(x): pass",
    "@snakepit.command(batch=4)\ndef f(x): yield",
    "snakepit.command(batch=4)(len)",
    "@snakepit.command(batch=4)\ndef f(*x): pass",
    "@snakepit.command(batch=4)\ndef f(): pass",
    "@snakepit.command(batch=4, window='soon')\ndef f(x): pass",
    "@snakepit.command(batch=4, window=1e9)\ndef f(x): pass",
    "snakepit.evaluator(3)",
    "@snakepit.evaluator('f')\ndef f(output): pass",
    "@snakepit.evaluator\ndef f(answer): pass",
    "snakepit.context().log('loud', 'x')",
    "snakepit.context().host.call(3)",
    "snakepit.context().host.call('ask', 1, a=1)",
    "import functools\nsnakepit.command(functools.partial(print))",
]

CALLS = [
    ("ad", [], {}),
    ("add", [1, 2, 3], {}),
    ("add", [], {}),
    ("add", [], {"a": 1, "c": 2}),
    ("add", [], {"a": "one"}),
    ("nothing", [1], {}),
    ("nothing", [], {"a": 1}),
    ("data", [[1, 2]], {}),
    ("data", ["text"], {}),
    ("either", [1.5], {}),
    ("numbers", [1], {}),
    ("pairs", [], {"pair": [1]}),
    ("pairs", [], {"pair": ["one", 2]}),
    ("pairs", [], {"days": {"a": "tomorrow"}}),
    ("scalars", [], {"price": "cheap"}),
    ("scalars", [], {"price": []}),
    ("scalars", [], {"id": "7"}),
    ("scalars", [], {"day": "tomorrow"}),
    ("scalars", [], {"color": "green"}),
    ("scalars", [], {"mode": "x"}),
    ("scalars", [], {"wait": "long"}),
    ("scalars", [], {"at": "noon"}),
    ("item", [], {"item": 1}),
    ("item", [], {"item": {}}),
    ("item", [], {"item": {"name": "pen", "prize": 1}}),
    ("item", [], {"item": {"name": "", "price": "1"}}),
    ("item", [], {"item": {"name": "pen", "price": "cheap"}}),
    ("item", [], {"needs": {}}),
    ("stream", [], {}),
    ("batched", ["none"], {}),
    ("judge", [], {"sample": {}, "input": 1, "output": "good", "expected": 1}),
    ("judge", [], {"sample": {}, "input": 1, "output": 2, "expected": 1}),
    ("judge", [], {"sample": {}, "input": 1, "output": {"score": 2}, "expected": 1}),
]

RESULTS = [
    "object()",
    "decimal.Decimal(1)",
    "uuid.UUID(int=1)",
    "datetime.date(2026, 1, 1)",
    "datetime.time(1)",
    "datetime.timedelta(1)",
    "datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(microseconds=1)))",
    "1j",
    "later()",
    "{frozenset(): 3}",
    "[1, {'rows': [object()]}]",
    "chr(0xd800)",
    "cyclic",
    "b'x' * (1 << 21)",
]

PAYLOADS = ["c1", "92 01", "01 02", "a1 ff", "81 80 01", "91" * 200, "d4 09 00", "d4 01", "d4 ff 00", "d5 05 00 00", "c7 00 01"]


def shown(value):
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "..."


def short(message):
    """Returns the message with a shorter path, where a value contains itself."""
    return re.sub(r"(\[0\]){9,}", "[0]...", message)


def refused_call(worker, command, args, named):
    try:
        raise AssertionError(f"{command} answered {worker.call(command, *args, **named)!r}")
    except CallError as error:
        return short(error.map["message"])


def malformed(payload):
    try:
        return repr(decode.decode(bytes.fromhex(payload), None, 140))
    except BadPayload as error:
        return str(error)


def last_line(worker):
    worker.wait()
    return worker.errors().rstrip().splitlines()[-1].replace(worker.directory.name, "~")


def every_refusal_names_the_thing_the_place_and_the_way_out():
    texts = []
    # The codec in Python: that of msgspec takes some of its texts from the library.
    with Worker(SOURCE, env={"SNAKEPIT_CODEC": "python"}, max_frame=1 << 20) as worker:
        worker.ready()
        texts += [f"{text!r}: {worker.call('define', text)}" for text in DEFINITIONS]
        texts += [f"{name}{shown(args or named)}: {refused_call(worker, name, args, named)}" for name, args, named in CALLS]
        texts += [f"-> {text}: {refused_call(worker, 'evaluate', [text], {})}" for text in RESULTS]
    texts += [f"<- {payload[:20]}: {malformed(payload)}" for payload in PAYLOADS]
    for files in ({"argument": "absent.py"}, {"argument": "snakepit.py", "files": {"snakepit.py": ""}},
                  {"argument": "./worker", "files": {"worker": ""}}, {"env": {"SNAKEPIT_CODEC": "fast"}},
                  {"argument": "early.py", "files": {"early.py": "import snakepit\nsnakepit.context()\n"}}):
        with Worker(**files) as worker:
            texts.append(f"worker {files.get('argument', 'with a wrong codec')}: {last_line(worker)}")
    told = "".join(f"{text}\n" for text in texts)
    if os.environ.get("INSTA_UPDATE") == "always":
        with open(GOLDEN, "w") as golden:
            golden.write(told)
    with open(GOLDEN) as golden:
        assert told == golden.read()
