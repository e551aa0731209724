"""Commands that wait, compute or hang, in Python and in C. Each reports to the host that it has begun."""

import ctypes
import os
import time

import snakepit


def begun():
    snakepit.context().host.call("begun")


@snakepit.command
def echo(value):
    return value


@snakepit.command
def sleep(seconds: float):
    begun()
    time.sleep(seconds)


@snakepit.command
def spin(seconds: float):
    begun()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@snakepit.command
def hold_the_gil(seconds: float):
    """In C, without using the CPU."""
    begun()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@snakepit.command
def hang_in_c(seconds: float):
    """In C, forever, without using the CPU. Unlike a sleep, a read goes on after a signal."""
    begun()
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


def time_of_power(bits):
    began = time.monotonic()
    3**bits
    return time.monotonic() - began


@snakepit.command
def big_power(seconds: float):
    """In C, using the CPU: one power that takes about that long."""
    bits = 1 << 20
    # The quickest of several: one that had to wait for the CPU would make the power far too short.
    took = min(time_of_power(bits) for _ in range(3))
    # Karatsuba: twice as many digits take three times as long.
    while took < seconds:
        bits, took = bits * 2, took * 3
    begun()
    return (3**bits).bit_length()
