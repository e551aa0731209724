"""Commands that wait, compute or hang, in Python and in C; each says in a file that it has begun."""

import ctypes
import os
import time

import snakepit


def begun(mark):
    with open(mark, "w"):
        pass


@snakepit.command
def echo(value):
    return value


@snakepit.command
def sleep(mark, seconds: float):
    begun(mark)
    time.sleep(seconds)


@snakepit.command
def spin(mark, seconds: float):
    begun(mark)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@snakepit.command
def hold_the_gil(mark, seconds: float):
    """In C, without CPU."""
    begun(mark)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@snakepit.command
def hang_in_c(mark, seconds: float):
    """In C, without CPU, and for ever: unlike a sleep, a read goes on after a signal."""
    begun(mark)
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


@snakepit.command
def big_power(mark, seconds: float):
    """In C, with CPU: one power that takes about so long."""
    began = time.monotonic()
    bits = 1 << 21
    3**bits
    # Karatsuba: twice as many digits take three times as long.
    took = time.monotonic() - began
    while took < seconds:
        bits, took = bits * 2, took * 3
    begun(mark)
    return (3**bits).bit_length()
