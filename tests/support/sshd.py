"""An sshd of the tests' own: a high port of loopback, with a key and a configuration of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import wait_until
from tests.support.ports import LOOPBACK, reserved_port

WHY_NOT = "no sshd: apt-get install openssh-server openssh-client"
SERVER = """\
ListenAddress {address}:{port}
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
LoginGraceTime 0
MaxStartups 100
ForceCommand export HOME={folder} {setting}; cd; eval "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """\
Host {names}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  HostKeyAlias tests
  LogLevel ERROR
"""


def program(name: str) -> str | None:
    """Return where a program is."""
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def available() -> bool:
    """Return whether an sshd can be started here."""
    return all(map(program, ("sshd", "ssh", "scp", "ssh-keygen")))


@contextmanager
def sshd(
    folder: Path,
    names: str = "one two",
    address: str = LOOPBACK,
    on: Sequence[str] = (),
    setting: str = "MCNB_TESTS=1",
) -> Iterator[Path]:
    """Run an sshd; yield the file that tells ssh how to reach it, under these names.

    Args:
        folder: Where its files go, and the home of those who log in.
        names: What hosts it is taken for, with spaces between.
        address: At which it listens.
        on: What runs a command on its host; this one, by default.
        setting: A variable of the environment of those who log in, with its value.
    """
    for key in ("host", "user"):
        words = ("-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
        subprocess.run([str(program("ssh-keygen")), *words], check=True)
    public = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"tests {public}")
    if os.geteuid() == 0:  # it wants to put its processes there, which root's alone may be
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with reserved_port() as port:
        values = {"folder": folder, "address": address, "port": port, "setting": setting}
        (folder / "sshd_config").write_text(SERVER.format(**values))
        client = folder / "ssh_config"
        client.write_text(CLIENT.format(names=names, user=getpass.getuser(), **values))
        log = folder / "sshd.log"
        with log.open("wb") as file:
            server = subprocess.Popen(
                [*on, str(program("sshd")), "-D", "-e", "-f", str(folder / "sshd_config")],
                stdout=file,
                stderr=file,
            )
        try:
            assert wait_until(lambda: "Server listening" in log.read_text(), 60), log.read_text()
            yield client
        finally:
            server.terminate()
            server.wait()
