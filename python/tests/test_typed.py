"""Arguments and results of annotated types, in both directions, and the errors for values that do not fit."""

import datetime
import importlib.util

import pytest
from harness import CallError, Worker

SOURCE = """
    {future}
    import dataclasses, datetime, decimal, enum, pathlib, uuid
    from typing import Dict, Iterator, List, Literal, NewType, Optional, Tuple, TypedDict, Union
    import snakepit

    class Color(enum.Enum):
        RED = "red"
        BLUE = "blue"

    class Size(enum.IntEnum):
        SMALL = 1

    @dataclasses.dataclass
    class Item:
        name: str
        price: decimal.Decimal
        tags: List[str] = dataclasses.field(default_factory=list)

    @dataclasses.dataclass
    class Order:
        id: uuid.UUID
        items: List[Item]
        due: Optional[datetime.date] = None
        parent: "Optional[Order]" = None

        def __post_init__(self):
            if not self.items:
                raise ValueError("an order has items")

    class Options(TypedDict, total=False):
        color: Color
        limit: int

    class Needs(TypedDict):
        path: pathlib.Path

    Meters = NewType("Meters", float)

    def told(*values):
        return [f"{{type(value).__name__}} {{value}}" for value in values]

    @snakepit.command
    def scalars(price: decimal.Decimal, id: uuid.UUID, day: datetime.date, path: pathlib.Path, color: Color, size: Size):
        return told(price, id, day, path, color, size)

    @snakepit.command
    def times(at: datetime.datetime, clock: datetime.time, wait: datetime.timedelta):
        return told(at, clock, wait)

    @snakepit.command
    def order(order: Order) -> Order:
        assert type(order) is Order and all(type(item) is Item for item in order.items)
        return order

    @snakepit.command
    def total(order: Order) -> decimal.Decimal:
        return sum(item.price for item in order.items)

    @snakepit.command
    def options(chosen: Options, needs: Optional[Needs] = None):
        return told(*chosen.values(), *(needs or {{}}).values())

    @snakepit.command
    def nested(many: Dict[str, List[decimal.Decimal]], pair: Tuple[pathlib.Path, int], rest: Tuple[Color, ...] = ()):
        return told(*many["a"], *pair, *rest)

    @snakepit.command
    def either(value: Union[pathlib.Path, str, int, Item]):
        return told(value)

    @snakepit.command
    def mode(mode: Literal["fast", "slow"] = "fast", far: Meters = Meters(1.0)):
        return told(mode, far)

    @snakepit.command
    def position(a: decimal.Decimal, /, b: int):
        return told(a, b)

    @snakepit.command
    def prices(n: int) -> Iterator[decimal.Decimal]:
        for i in range(n):
            yield decimal.Decimal(i) / 10

    @snakepit.command
    def plain():
        return decimal.Decimal("1.10")

    @snakepit.command
    def bare():
        return Item("a", decimal.Decimal("1.10"))

    @snakepit.command
    def listed() -> List[datetime.date]:
        return [datetime.date(2026, 1, 31)]

    @snakepit.command
    def numbers(values: List[int]) -> List[int]:
        return values
{more}
"""
ASYNC = """
    @snakepit.command
    async def later() -> decimal.Decimal:
        return decimal.Decimal("0.5")

    @snakepit.command
    async def several(n: int) -> Iterator[decimal.Decimal]:
        for i in range(n):
            yield decimal.Decimal(i)
"""
ID = "12345678-1234-5678-1234-567812345678"
ORDER = {"id": ID, "items": [{"name": "nut", "price": "1.10"}]}
FULL = {"id": ID, "items": [{"name": "nut", "price": "1.10", "tags": []}], "due": None, "parent": None}


@pytest.fixture(scope="module", params=["serial", "concurrent", "future", "async"])
def worker(request):
    future = "from __future__ import annotations" if request.param == "future" else ""
    source = SOURCE.format(future=future, more=ASYNC if request.param == "async" else "")
    with Worker(source, concurrency=3 if request.param == "concurrent" else 1) as running:
        running.ready()
        running.kind = request.param
        yield running


def a_value_is_made_into_what_its_annotation_says(worker):
    told = worker.call("scalars", price="1.10", id=ID, day="2026-01-31", path="/tmp/x", color="red", size=1)
    assert told[:3] == ["Decimal 1.10", f"UUID {ID}", "date 2026-01-31"]
    assert told[3] == "PosixPath /tmp/x" and told[4] == "Color Color.RED" and told[5].startswith("Size ")
    assert worker.call("scalars", 0.1, ID, "2026-01-31", ".", "blue", 1)[0] == "Decimal 0.1"


def a_time_comes_as_itself_or_as_text(worker):
    told = worker.call("times", at="2026-01-31T12:00:00Z", clock="12:30:00", wait=90)
    assert told == ["datetime 2026-01-31 12:00:00+00:00", "time 12:30:00", "timedelta 0:01:30"]
    told = worker.call("times", at=datetime.datetime(2026, 1, 31), clock="12:30", wait=0.5)
    assert told[0] == "datetime 2026-01-31 00:00:00"


def a_dataclass_travels_both_ways(worker):
    assert worker.call("order", order=ORDER) == FULL
    assert worker.call("order", ORDER) == FULL
    inner = worker.call("order", order={**ORDER, "due": "2026-01-31", "parent": ORDER})
    assert inner == {**FULL, "due": "2026-01-31", "parent": FULL}
    assert worker.call("total", order={"id": ID, "items": ORDER["items"] * 3}) == "3.30"


def a_typed_dict_has_its_keys_converted(worker):
    assert worker.call("options", chosen={"color": "red", "limit": 3}) == ["Color Color.RED", "int 3"]
    assert worker.call("options", chosen={}, needs={"path": "/x"}) == ["PosixPath /x"]
    assert "Needs needs the key 'path'" in worker.error("options", chosen={}, needs={})["message"]


def what_stands_in_brackets_is_converted(worker):
    told = worker.call("nested", many={"a": ["1", 2]}, pair=["/x", 3], rest=["red"])
    assert told == ["Decimal 1", "Decimal 2", "PosixPath /x", "int 3", "Color Color.RED"]
    assert worker.call("numbers", values=[1, 2]) == [1, 2]


def what_fits_a_union_as_it_is_stays_so(worker):
    assert worker.call("either", value="x") == ["str x"]
    assert worker.call("either", value=3) == ["int 3"]
    assert worker.call("either", value={"name": "n", "price": 1})[0].startswith("Item ")
    assert worker.call("mode", mode="slow", far=2.5) == ["str slow", "float 2.5"]
    assert worker.call("position", a="1.5", b=2) == ["Decimal 1.5", "int 2"]


def a_result_is_converted_where_its_annotation_says_so(worker):
    assert worker.stream("prices", n=3) == ["0", "0.1", "0.2"]
    assert worker.call("listed") == ["2026-01-31"]
    # The fields of a dataclass have annotations of their own.
    assert worker.call("bare") == {"name": "a", "price": "1.10", "tags": []}
    assert "annotate the command with -> Decimal" in worker.error("plain")["message"]
    if worker.kind == "async":
        assert worker.call("later") == "0.5"
        assert worker.stream("several", n=2) == ["0", "1"]


@pytest.mark.parametrize(
    "command, arguments, said",
    [
        ("total", {"order": 1}, "must be Order, as a dict of its fields, not int"),
        ("total", {"order": {"items": []}}, "Order needs the field 'id'"),
        ("total", {"order": {**ORDER, "idd": 1}}, "Order has no field 'idd'; it has id, items, due, parent"),
        ("total", {"order": {"id": ID, "items": []}}, "is not a valid Order: an order has items"),
        ("total", {"order": {"id": "x", "items": []}}, "id: must be UUID, as a text, not 'x'"),
        ("total", {"order": {"id": ID, "items": [{"name": "n", "price": "much"}]}},
         "items[0].price: must be Decimal, as a text or a number, not 'much'"),
        ("total", {"order": {"id": ID, "items": [{"name": 3, "price": 1}]}}, "items[0].name: must be str, not int"),
        ("scalars", {"price": 1, "id": ID, "day": "soon", "path": "", "color": "red", "size": 1},
         "must be date, as an ISO text such as '2026-01-31', not 'soon'"),
        ("scalars", {"price": 1, "id": ID, "day": "2026-01-31", "path": "", "color": "green", "size": 1},
         "must be Color, one of 'red', 'blue', not 'green'"),
        ("mode", {"mode": "other"}, "must be 'fast' or 'slow', not 'other'"),
        ("either", {"value": {"name": "n"}}, "Item needs the field 'price'"),
        ("either", {"value": [1]}, "must be Path or str or int or Item, not list"),
        ("nested", {"many": {}, "pair": [1]}, "must have 2 items, not 1"),
    ],
)
def what_does_not_fit_is_named_with_its_field(worker, command, arguments, said):
    error = worker.error(command, **arguments)
    assert error["kind"] == "bad_argument", error
    assert said in error["message"], error["message"]


def a_class_that_holds_its_own_kind_is_checked_all_the_way_down(worker):
    error = worker.error("total", order={**ORDER, "parent": {**ORDER, "parent": {**ORDER, "due": 3}}})
    assert "parent.parent.due: " in error["message"], error["message"]


MODELS = """
    import datetime, decimal
    from typing import List, Optional
    import pydantic, snakepit

    class Part(pydantic.BaseModel):
        price: decimal.Decimal
        made: Optional[datetime.date] = None

    class Whole(pydantic.BaseModel):
        name: str
        parts: List[Part]

    @snakepit.command
    def whole(whole: Whole) -> Whole:
        assert type(whole) is Whole and type(whole.parts[0]) is Part
        return whole

    @snakepit.command
    def many(wholes: List[Whole]):
        return [whole.parts[0] for whole in wholes]
"""


@pytest.mark.skipif(importlib.util.find_spec("pydantic") is None, reason="pydantic is not installed")
def a_model_of_pydantic_travels_both_ways():
    with Worker(MODELS) as worker:
        worker.ready()
        whole = {"name": "a", "parts": [{"price": "1.10", "made": "2026-01-31"}]}
        assert worker.call("whole", whole=whole) == whole
        assert worker.call("many", wholes=[whole]) == whole["parts"]
        error = worker.error("whole", whole={"name": "a", "parts": [{"price": "x"}]})
        assert error["kind"] == "bad_argument" and "parts.0.price" in error["message"], error


NUMBERS = """
    from typing import List
    import numpy, snakepit

    @snakepit.command
    def half(x: numpy.float32, n: numpy.int8, yes: numpy.bool_):
        return [type(x).__name__, type(n).__name__, bool(yes)]

    @snakepit.command
    def total(values: numpy.ndarray) -> numpy.int64:
        return values.sum()

    @snakepit.command
    def double(values: numpy.ndarray) -> numpy.ndarray:
        return values * 2
"""


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")
def a_number_of_numpy_travels_both_ways():
    with Worker(NUMBERS) as worker:
        worker.ready()
        assert worker.call("half", x=1, n=100, yes=True) == ["float32", "int8", True]
        assert worker.call("total", values=[1, 2, 3]) == 6
        assert worker.call("double", values=[[1, 2], [3, 4]]) == [[2, 4], [6, 8]]
        assert "int8, from -128 to 127, not 200" in worker.error("half", x=1, n=200, yes=True)["message"]
        assert "must be float32, as a number, not str" in worker.error("half", x="1", n=1, yes=True)["message"]


def a_function_without_the_decorator_is_pointed_out():
    with Worker("import snakepit\n\ndef add(a, b):\n    return a + b\n") as worker:
        worker.ready()
        error = worker.error("add", 1, 2)
        assert error["message"] == "worker.py defines add(), but no function is decorated with @snakepit.command"
        assert "cause" not in error
    with Worker("import snakepit\n\ndef add(a, b): ...\n\n@snakepit.command\ndef sub(a, b): ...\n") as worker:
        worker.ready()
        message = worker.error("add", 1, 2)["message"]
        assert message == "worker.py defines add(), but it is not decorated with @snakepit.command"
