"""Certificates for an engine's TLS: an authority, a server that it vouches for, an expired server.

All are made by openssl at each start, so that no private key is ever kept.
"""

import shutil
import subprocess
from pathlib import Path

from lib.errors import FailureError, SkippedError

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
# `openssl ca` is the one that lets us say since when and until when, on any version of openssl.
CONFIGURATION = """
[ca]
default_ca = authority
[authority]
new_certs_dir = .
database = index.txt
rand_serial = yes
default_md = sha256
policy = policy
unique_subject = no
[policy]
commonName = supplied
[server]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
"""
VALID = ("20200101000000Z", "20491231235959Z")
EXPIRED = ("20200101000000Z", "20200201000000Z")


def check() -> None:
    """Refuses a machine without openssl."""
    if shutil.which("openssl") is None:
        raise SkippedError("--tls needs openssl, which is not on PATH (Debian: openssl)")


def make(folder: Path) -> None:
    """Makes ca.crt, and server.pem and expired.pem, each a key with its certificate."""
    folder.mkdir()
    (folder / "ca.cnf").write_text(CONFIGURATION)
    (folder / "index.txt").touch()
    subject = ["-subj", "/CN=Heliograph test authority", "-days", "3650"]
    _openssl(folder, "req", "-x509", *KEY, *subject, "-keyout", "ca.key", "-out", "ca.crt")
    _server(folder, "server", VALID)
    _server(folder, "expired", EXPIRED)


def _server(folder: Path, name: str, times: tuple[str, str]) -> None:
    key, request, certificate = f"{name}.key", f"{name}.csr", f"{name}.crt"
    _openssl(folder, "req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    authority = ["-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key"]
    dates = ["-startdate", times[0], "-enddate", times[1], "-extensions", "server"]
    _openssl(
        folder, "ca", *authority, *dates, "-batch", "-notext", "-in", request, "-out", certificate
    )
    # Kafka reads a key and its certificate from one file.
    both = "".join((folder / part).read_text() for part in (key, certificate))
    (folder / f"{name}.pem").write_text(both)


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise FailureError(f"openssl {arguments[0]} failed:\n{done.stderr}")
