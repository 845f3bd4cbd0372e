"""Make the keys with which the processes of a cluster recognize each other."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from mcnb.worker.settings import IDENTITY, Credentials

# Longer than any cluster lives; the key is removed with the cluster.
_DAYS = 3650


def make_credentials() -> Credentials | None:
    """Make a key, and a certificate that it has signed itself; None without openssl.

    The processes of a cluster have the same ones, and accept nobody else.

    Example:
        >>> made = make_credentials()
        >>> made is None or made.certificate.startswith("-----BEGIN CERTIFICATE-----")
        True
    """
    if shutil.which("openssl") is None:
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
