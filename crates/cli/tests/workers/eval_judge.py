"""Evaluators for the tests of `snakepit eval`."""

import os

import snakepit


@snakepit.evaluator
def strict(sample, output):
    if sample["id"] == "s4":
        raise RuntimeError("four is not for me")
    if sample["input"]["n"] % 2:
        return {"score": 0.25, "reason": f"{output} is no answer"}
    return True


@snakepit.evaluator
async def whole(input, output, expected):
    return 1.0 if output == expected == 2 * input["n"] else 0.0


@snakepit.evaluator
def deadly(output):
    os._exit(5)


def plain(output):
    return True
