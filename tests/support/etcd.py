"""A real etcd of one member on loopback, with TLS in both directions and users, for tests of whole programs.

  etcd = Etcd(self, directory)               # ends when the test ends
  etcd.flags("muster")                       # what a coordinator needs to reach it as this user
"""

import os
import re
import signal
import subprocess

from cluster import wait_until

ANY = "http://127.0.0.1:0"


class Etcd:
    names = "IP:127.0.0.1"  # in its certificate
    key = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")

    def __init__(self, test, directory, users=True, flags=()):
        self.directory, self.more_flags = directory, flags
        directory.mkdir()
        self._make_authority()
        for name in ("etcd", "root", "muster", "eve", "nobody"):
            self._make_certificate(name)
        self._process, self.port = None, 0
        test.addCleanup(self.kill)
        self.start()
        if users:
            self._make_users()

    def path(self, name):
        return self.directory / name

    def start(self):
        """Also again, on the same port and with the same data."""
        url = f"https://127.0.0.1:{self.port}"
        log = self.path("log")
        log.unlink(missing_ok=True)
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                ["etcd", "--data-dir", self.path("data"), "--logger", "zap", "--log-outputs", "stderr",
                 "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", ANY,
                 "--initial-advertise-peer-urls", ANY, "--initial-cluster", f"default={ANY}",
                 "--client-cert-auth", "--trusted-ca-file", self.path("ca.pem"),
                 "--cert-file", self.path("etcd.pem"), "--key-file", self.path("etcd.key"), *self.more_flags],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        serving = re.compile(r'serving client traffic securely","address":"127\.0\.0\.1:(\d+)"')
        found = wait_until(lambda: serving.search(log.read_text(encoding="utf-8")), "etcd serves")
        self.port = int(found.group(1))

    def kill(self):
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def flags(self, name):
        """By the certificate with this common name."""
        return ["--etcd", f"https://127.0.0.1:{self.port}", "--etcd-ca", self.path("ca.pem"),
                "--etcd-cert", self.path(f"{name}.pem"), "--etcd-key", self.path(f"{name}.key")]

    def replace(self, name, other):
        """Puts the credentials of `other` in the place of those of `name`."""
        for suffix in ("key", "pem"):
            new = self.path("new")
            new.write_bytes(self.path(f"{other}.{suffix}").read_bytes())
            new.replace(self.path(f"{name}.{suffix}"))

    def ctl(self, *words, stdin=None):
        done = subprocess.run(
            ["etcdctl", "--endpoints", f"https://127.0.0.1:{self.port}", "--cacert", self.path("ca.pem"),
             "--cert", self.path("root.pem"), "--key", self.path("root.key"), *words],
            env={**os.environ, "ETCDCTL_API": "3"}, input=stdin, capture_output=True, text=True,
            timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def put_file(self, key, file):
        self.ctl("put", key, stdin=file.read_text(encoding="utf-8"))

    def keys(self, prefix):
        return self.ctl("get", "--prefix", "--keys-only", prefix).split()

    def _make_users(self):
        """`muster` has the prefix /muster/ and no more, `eve` nothing; `nobody` is no user."""
        for user in ("root", "muster", "eve"):
            self.ctl("user", "add", f"{user}:of-{user}")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("role", "add", "muster")
        self.ctl("role", "grant-permission", "muster", "--prefix=true", "readwrite", "/muster/")
        self.ctl("user", "grant-role", "muster", "muster")
        self.ctl("auth", "enable")

    def _openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)

    def _make_authority(self):
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                      "-subj", "/CN=etcd authority", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))

    def _make_certificate(self, name):
        self._openssl("req", "-newkey", *self.key, "-nodes", "-subj", f"/CN={name}",
                      "-keyout", self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"))
        extensions = self.path("extensions")
        extensions.write_text(f"subjectAltName={self.names}\n", encoding="utf-8")
        self._openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.pem"), "-CAkey",
                      self.path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out",
                      self.path(f"{name}.pem"))
