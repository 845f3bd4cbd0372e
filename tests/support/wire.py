"""A wire between network namespaces on which everything takes a while, for kernels without netem.

Each end is a TAP device: what a host sends, this process reads as an Ethernet frame, and writes it
to the other end later. https://docs.kernel.org/networking/tuntap.html
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TAP, _NO_PI = 0x0002, 0x1000
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LONGEST_FRAME = 1 << 16


def _tap(namespace: str, name: str) -> int:
    """Return the file of a new TAP device in a namespace; it lives as long as the file is open."""

    def make() -> int:
        with Path("/run/netns", namespace).open() as file:
            # For the thread that calls it only.
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "setns")
        device = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_PI))
        return device

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


@contextlib.contextmanager
def wire(one: tuple[str, str], other: tuple[str, str], delay_s: float) -> Iterator[None]:
    """Join two new network devices.

    Args:
        one: The namespace and the name of a device.
        other: The same of the other.
        delay_s: How long a frame takes from the one to the other.
    """
    ends = [_tap(*one), _tap(*other)]
    awake, stop = os.pipe()
    carrier = threading.Thread(target=_carry, args=(ends, awake, delay_s), daemon=True)
    carrier.start()
    try:
        yield
    finally:
        os.close(stop)
        carrier.join()
        for end in (*ends, awake):
            os.close(end)


def _carry(ends: list[int], awake: int, delay_s: float) -> None:
    """Carry frames until the other end of the pipe is closed."""
    under_way: collections.deque[tuple[float, int, bytes]] = collections.deque()
    to = dict(zip(ends, reversed(ends), strict=True))
    while True:
        left = max(under_way[0][0] - time.monotonic(), 0.0) if under_way else None
        ready, _, _ = select.select([*ends, awake], [], [], left)
        if awake in ready:
            return
        now = time.monotonic()
        for end in ready:
            # A device that is not up yet has nothing.
            with contextlib.suppress(BlockingIOError, OSError):
                under_way.append((now + delay_s, to[end], os.read(end, _LONGEST_FRAME)))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            with contextlib.suppress(OSError):  # the device is down: a network loses frames
                os.write(end, frame)
