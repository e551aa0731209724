"""Evaluators: what they get, and what they may return."""

import pytest
from harness import Worker

SOURCE = """
    import functools
    import snakepit

    @snakepit.evaluator
    def whole(sample, output):
        return sample["difficulty"] == output

    @snakepit.evaluator
    def alike(output, expected):
        return {"score": 0.25, "reason": f"{output} is not {expected}"}

    @snakepit.evaluator(name="all")
    def everything(**given):
        return sorted(given) == ["expected", "input", "output", "sample"]

    @snakepit.evaluator
    async def later(input, output):
        return 0.5 if input == output else 0

    def noted(function):
        @functools.wraps(function)
        def inner(*args, **named):
            return function(*args, **named)
        return inner

    @snakepit.evaluator
    @noted
    def wrapped(output, strict=False):
        return not strict

    @snakepit.evaluator
    def returns(output):
        return {"none": None, "text": "good", "above": 1.5, "nan": float("nan"), "empty": {}, "odd": {"score": 1, "x": 2},
                "nested": {"score": 2}, "raises": None}[output]
"""
SAMPLE = {"id": "a", "input": 1, "expected": 2, "difficulty": "hard"}


@pytest.fixture(scope="module")
def worker():
    with Worker(SOURCE, concurrency=2) as running:
        running.ready()
        yield running


def judged(worker, name, output):
    return worker.call(name, sample=SAMPLE, input=1, output=output, expected=2)


def an_evaluator_gets_what_it_takes(worker):
    assert judged(worker, "whole", "hard") is True
    assert judged(worker, "whole", "easy") is False
    assert judged(worker, "alike", 3) == {"score": 0.25, "reason": "3 is not 2"}
    assert judged(worker, "all", 1) is True
    assert judged(worker, "later", 1) == 0.5
    assert judged(worker, "wrapped", 1) is True


@pytest.mark.parametrize(
    "what, words",
    [("none", "returned None: return a bool"), ("text", "returned 'good': return a bool"), ("above", "a score is 0 to 1"),
     ("nan", "a score is 0 to 1"), ("empty", "returned {}: return a bool"), ("odd", "return a bool"),
     ("nested", "the score 2: a score is 0 to 1")],
)
def what_is_no_judgement_is_an_error_that_says_what_may_be_returned(worker, what, words):
    error = worker.error("returns", sample=SAMPLE, input=1, output=what, expected=2)
    assert "evaluator 'returns'" in error["message"] and words in error["message"]


def what_cannot_judge_is_refused_when_it_is_defined():
    for source, words in [
        ("@snakepit.evaluator\ndef f(answer): pass\n", "it must take some of sample, input, output, expected"),
        ("snakepit.evaluator(3)\n", "an evaluator is a function, not int"),
        ("@snakepit.evaluator('f')\ndef f(output): pass\n", "write evaluator(name='f')"),
    ]:
        with Worker("import snakepit\n" + source) as running:
            running.wait()
            assert words in running.errors()
