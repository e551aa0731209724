"""Commands whose results cannot be sent."""

import datetime
import decimal

import snakepit


class Thing:
    pass


@snakepit.command
def surrogate():
    return {"text": "\ud800"}


@snakepit.command(name="decimal")
def decimal_():
    return [1, decimal.Decimal("1.5")]


@snakepit.command
def deep():
    value = []
    for _ in range(200):
        value = [value]
    return value


@snakepit.command
def cycle():
    value = []
    value.append(value)
    return value


@snakepit.command
def a_class():
    return {"rows": [1, 2, {"thing": Thing()}]}


@snakepit.command
def a_key():
    return {Thing(): 1}


@snakepit.command
def a_date():
    return datetime.date(2024, 1, 1)
