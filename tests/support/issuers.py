"""The Python with issuers of OpenID Connect that `deploy/install-deps --issuers` installs, and what runs in it."""

import json
import os
import pathlib
import ssl
import subprocess
import urllib.error
import urllib.request

from fake_issuer import openssl

_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = pathlib.Path(os.environ.get("MUSTER_ISSUERS_PYTHON", _CACHE / "muster" / "issuers" / "bin" / "python"))


def require():
    """Tests fail, and do not skip, without it."""
    if not os.access(PYTHON, os.X_OK):
        raise AssertionError(f"{PYTHON} is not there; run deploy/install-deps --issuers")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class DjangoIssuer:
    """django-oauth-toolkit (django_issuer.py)."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = folder / "tls.pem"

    def __enter__(self):
        require()
        self.folder.mkdir()
        key = self.folder / "tls.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2, "-keyout", key,
                "-out", self.ca, "-subj", "/CN=issuer", "-addext", "subjectAltName=IP:127.0.0.1")
        program = pathlib.Path(__file__).with_name("django_issuer.py")
        with open(self.folder / "issuer.log", "wb") as log:
            self.process = subprocess.Popen([str(PYTHON), str(program), str(self.folder), str(self.ca), str(key)], stdout=subprocess.PIPE,
                                            stderr=log, stdin=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError((self.folder / "issuer.log").read_text(encoding="utf-8"))
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def ask(self, url):
        context = ssl.create_default_context(cafile=str(self.ca))
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect).open(url, timeout=30)

    def sign_in(self, url):
        try:
            with self.ask(url) as page:
                raise AssertionError(f"{url}: {page.status} {page.read().decode()}")
        except urllib.error.HTTPError as answer:
            if answer.code != 302:
                raise AssertionError(f"{url}: {answer.code} {answer.read().decode()}") from answer
            return answer.headers["Location"]

    def rotate(self):
        with self.ask(self.url.removesuffix("/o") + "/rotate"):
            pass


class Forger:
    """Has Authlib make tokens (authlib_tokens.py) by what `forgery` says: alg, key, kid, claims."""

    def __init__(self, key):
        self.key, self.forgery = key, {}

    def __enter__(self):
        require()
        program = pathlib.Path(__file__).with_name("authlib_tokens.py")
        self.process = subprocess.Popen([str(PYTHON), "-W", "ignore", str(program), str(self.key.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def token(self, issuer, subject, nonce):
        wanted = {"iss": issuer, "sub": subject, "nonce": nonce, "kid": self.key.kid, **self.forgery}
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()
