"""Evaluators in a separate file."""

import os

import snakepit


@snakepit.evaluator
def by_level(sample):
    level = sample["level"]
    if level == "deadly":
        os._exit(4)
    known = {0: True, 1: {"score": 0.25, "reason": f"level {level} is hard"}}
    return known[level]


@snakepit.evaluator
async def polite(output, expected):
    return output == expected
