"""Clusters with issuers of OpenID Connect, and people who log in to them."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from cluster import BIN
from tls_cluster import TlsCluster


class ClusterWithIssuers(TlsCluster):
    """Certificates of logins last five minutes, so that each command renews them. `authorities`: a file with those of the issuers."""

    def __init__(self, test, authorities, **options):
        self.authorities = authorities
        # Other accounts reach it.
        self.public = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.public.chmod(0o755)
        super().__init__(test, nodes=0, **options)

    def start(self, name, program, *arguments, env=None):
        if program == "muster-coordinator":
            arguments += ("--issuer-ca", self.authorities, "--user-certificate-lifetime", "5m", "--local-login", self.socket())
        return super().start(name, program, *arguments, env=env)

    def socket(self):
        return self.public / "login.sock"

    def close(self):
        super().close()
        shutil.rmtree(self.public, ignore_errors=True)

    def apply_users(self, issuers, identities, disabled=(), without_role=(), accounts=None):
        """`identities`: (issuer's URL, subject) by user; `accounts`: of this machine. All but those have a role."""
        users = {name: {"identity": {"issuer": url, "subject": subject}, "disabled": name in disabled}
                 for name, (url, subject) in identities.items()}
        users.update({name: {"account": account, "disabled": name in disabled} for name, account in (accounts or {}).items()})
        file = self.path("users.yaml")
        file.write_text(json.dumps({"issuers": [{"url": url, "client_id": "muster"} for url in issuers], "users": {"root": {}, **users},
                                    "roles": [{"role": "submitter", "users": ["root", *(name for name in users if name not in without_role)]}]}),
                        encoding="utf-8")
        return self.muster("users", "apply", file)

    def audit(self, operation="Login"):
        entries = json.loads(self.muster("audit", "tail", "-n", 1000, "-o", "json").stdout)
        return [entry for entry in entries if entry["operation"] == operation]


class Person:
    """A home directory, and the commands of the person whose it is. `browser`: the shell's command in place of xdg-open."""

    def __init__(self, root, name, browser):
        self.home = root / name
        self.home.mkdir()
        opener = self.home / "xdg-open"
        opener.write_text(f"#!/bin/sh\n{browser.format(home=self.home)}\n", encoding="utf-8")
        opener.chmod(0o755)
        self.config = self.home / "config"

    def environment(self, **more):
        # The keyring of the session in which tests run is not a test's.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MUSTER_", "SSH_", "DBUS_", "XDG_"))}
        return {**inherited, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.config), "XDG_STATE_HOME": str(self.home / "state"),
                "PATH": f"{self.home}:{os.environ['PATH']}", "DISPLAY": ":0", **more}

    def begin(self, *words, **more):
        return subprocess.Popen([str(BIN / "muster"), *map(str, words)], env=self.environment(**more), text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def muster(self, *words, check=True, timeout=60, **more):
        process = self.begin(*words, **more)
        out, err = process.communicate(timeout=timeout)
        done = subprocess.CompletedProcess(words, process.returncode, out, err)
        if check and done.returncode != 0:
            raise AssertionError(f"muster {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def files(self):
        return self.config / "muster" / "clusters" / "lab"

    def login_file(self):
        return json.loads((self.files() / "login.json").read_text(encoding="utf-8"))

    def certificate(self, *what):
        return subprocess.run(["openssl", "x509", "-noout", "-in", str(self.files() / "cert.pem"), *what], check=True, text=True,
                              capture_output=True, timeout=60).stdout
