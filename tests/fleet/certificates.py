"""Certificates of a fleet's servers and clients."""

import pathlib
import ssl
import subprocess
import time


class Certificates:
    """A CA, and certificates of a server at 127.0.0.1 and of a client."""

    def __init__(self, folder, days=2):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca = self.folder / "ca.pem"
        self._openssl("req", "-x509", *self._new_key("ca"), "-days", "2", "-subj", "/CN=CA of a test", "-out", self.ca)
        self._days = days
        self.renew()
        self.client_certificate, self.client_key = self._issue("client", 2, "extendedKeyUsage=clientAuth")

    def renew(self):
        """Issues the certificate of the server, with another key."""
        self.certificate, self.key = self._issue("server", self._days, "subjectAltName=IP:127.0.0.1")

    def _issue(self, name, days, extension):
        request, certificate = self.folder / f"{name}.csr", self.folder / f"{name}.pem"
        self._openssl("req", *self._new_key(name), "-subj", f"/CN={name}", "-addext", extension, "-out", request)
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-days", str(days),
            "-copy_extensions", "copy", "-out", certificate,
        )  # fmt: skip
        return certificate, self.folder / f"{name}.key"

    def _new_key(self, name):
        curve = "ec_paramgen_curve:P-256"
        return ["-newkey", "ec", "-pkeyopt", curve, "-nodes", "-keyout", self.folder / f"{name}.key"]

    def has_expired(self):
        """Whether the certificate of the server has expired, for more than a second."""
        command = ["openssl", "x509", "-in", self.certificate, "-noout", "-enddate"]
        end = subprocess.check_output(command, text=True).strip().partition("=")[2]
        return ssl.cert_time_to_seconds(end) < time.time() - 1

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
