"""Errors of ssh, and what to do about each."""

from __future__ import annotations

import pytest

from mcnb.launchers.ssh import _why_not


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "Host key verification failed",
            "ssh does not know the key of the host one:22 (Host key verification failed). Log in "
            "once and accept the key: ssh -p 22 one",
        ),
        (
            "ada@one: Permission denied (publickey)",
            "The host one:22 refused a login without a password: ada@one: Permission denied "
            "(publickey). Set up a key with ssh-copy-id, and try: ssh -o BatchMode=yes -p 22 one",
        ),
        (
            "Connection refused",
            "The host one:22 can't be reached: Connection refused. Try: ssh -o BatchMode=yes -p 22 "
            "one",
        ),
    ],
)
def test_why_a_host_is_not_reached(said: str, message: str) -> None:
    assert _why_not("one:22", said, "-p 22 one") == message
