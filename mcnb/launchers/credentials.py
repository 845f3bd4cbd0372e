"""Make the keys with which the processes of a cluster recognize each other."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import tempfile
from pathlib import Path

from mcnb._text import release
from mcnb.worker.settings import IDENTITY, Credentials

# Longer than any cluster lives; the key is removed with the cluster.
_DAYS = 3650
# The first version of JAX with which they were tried.
_SINCE = (0, 12)


def make_credentials() -> Credentials | None:
    """Make a key, and a certificate that it has signed itself.

    The processes of a cluster have the same ones, and accept nobody else.

    Returns:
        Both; None if there is no openssl, or JAX is too old to use them.

    Example:
        >>> made = make_credentials()
        >>> made is None or made.certificate.startswith("-----BEGIN CERTIFICATE-----")
        True
    """
    if release(importlib.metadata.version("jax")) < _SINCE or shutil.which("openssl") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:  # which only its owner can read
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        made = subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", str(_DAYS)),
                *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=mcnb"),
                *("-addext", f"subjectAltName=URI:{IDENTITY}", "-keyout", str(key)),
                *("-out", str(certificate)),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if made.returncode:  # an old version
            return None
        return Credentials(certificate.read_text(), key.read_text())
