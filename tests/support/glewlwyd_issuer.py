"""An issuer of Debian's glewlwyd on loopback, over HTTPS: one user, `ada`, and one public client, `muster`.

  with GlewlwydIssuer(folder) as issuer:
      issuer.sign_in(url)        # as a browser would that ada has open: returns where the redirect led
      issuer.enter_code(code)    # the same for the device flow

`deploy/install-deps --issuers` unpacks the package into the cache; MUSTER_GLEWLWYD_ROOT names another place.
"""

import http.cookiejar
import json
import os
import pathlib
import socket
import sqlite3
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from cluster import wait_until

_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
ROOT = pathlib.Path(os.environ.get("MUSTER_GLEWLWYD_ROOT", _CACHE / "muster" / "glewlwyd"))
PROGRAM = ROOT / "usr/bin/glewlwyd"
SCHEMA = ROOT / "usr/share/dbconfig-common/data/glewlwyd/install/sqlite3"
CONFIGURATION = """
port={port}
bind_address="127.0.0.1"
external_url="https://127.0.0.1:{port}"
login_url="login.html"
api_prefix="api"
static_files_path="{folder}"
log_mode="file"
log_level="WARNING"
log_file="{folder}/glewlwyd.log"
cookie_domain="127.0.0.1"
cookie_secure=1
session_expiration=2419200
session_key="GLEWLWYD2_SESSION_ID"
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="{root}/usr/lib/glewlwyd/user"
user_middleware_module_path="{folder}/none"
client_module_path="{root}/usr/lib/glewlwyd/client"
user_auth_scheme_module_path="{root}/usr/lib/glewlwyd/scheme"
plugin_module_path="{root}/usr/lib/glewlwyd/plugin"
use_secure_connection=true
secure_connection_key_file="{folder}/tls.key"
secure_connection_pem_file="{folder}/tls.pem"
hash_algorithm="SHA512"
database = {{ type = "sqlite3"; path = "{folder}/glewlwyd.db"; }};
"""


def require():
    if not os.access(PROGRAM, os.X_OK):
        raise AssertionError(f"{PROGRAM} is not there; run deploy/install-deps --issuers")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Session:
    """A browser, as far as it is needed: cookies, and redirects that are looked at."""

    def __init__(self, base, ca):
        self.base = base
        context = ssl.create_default_context(cafile=str(ca))
        self.opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect,
                                                  urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def ask(self, method, path, document=None):
        """(code, body, Location)"""
        data = None if document is None else json.dumps(document).encode()
        url = path if path.startswith("http") else self.base + path
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"} if data else {})
        try:
            with self.opener.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers.get("Location")
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode(), answer.headers.get("Location")

    def must(self, method, path, document=None):
        code, body, _ = self.ask(method, path, document)
        if code != 200:
            raise AssertionError(f"{method} {path}: {code} {body}")
        return json.loads(body) if body else None


class GlewlwydIssuer:
    def __init__(self, folder, key="RS256"):
        self.folder, self.key = folder, key

    def __enter__(self):
        require()
        (self.folder / "none").mkdir(parents=True)  # it must be there
        self.ca = self.folder / "tls.pem"
        openssl = lambda *words: subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-keyout", self.folder / "tls.key", "-out", self.ca,
                "-subj", "/CN=issuer", "-addext", "subjectAltName=IP:127.0.0.1")
        if self.key == "RS256":
            openssl("genrsa", "-out", self.folder / "sign.key", 2048)
        else:
            openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.folder / "sign.key")
        openssl("pkey", "-in", self.folder / "sign.key", "-pubout", "-out", self.folder / "sign.pem")
        with sqlite3.connect(self.folder / "glewlwyd.db") as database:
            database.executescript(SCHEMA.read_text(encoding="utf-8"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        configuration = self.folder / "glewlwyd.conf"
        configuration.write_text(CONFIGURATION.format(port=port, folder=self.folder, root=str(ROOT).rstrip("/")), encoding="utf-8")
        libraries = ROOT / "usr/lib/x86_64-linux-gnu"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        with open(self.folder / "output.log", "wb") as log:
            self.process = subprocess.Popen([str(PROGRAM), "--config-file", str(configuration)], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=environment)
        self.base = f"https://127.0.0.1:{port}"
        self.url = f"{self.base}/api/oidc"
        try:
            wait_until(self.answers, "glewlwyd answers", timeout=60)
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def answers(self):
        try:
            return Session(self.base, self.ca).ask("GET", "/config/")[0] == 200
        except OSError:
            return False

    def log_in(self, user):
        session = Session(self.base, self.ca)
        session.must("POST", "/api/auth/", {"username": user, "password": "password"})
        return session

    def set_up(self):
        admin = self.log_in("admin")
        admin.must("POST", "/api/mod/plugin/", {
            "module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "parameters": {
                "iss": self.url, "jwt-type": "rsa" if self.key == "RS256" else "ecdsa", "jwt-key-size": "256",
                "key": (self.folder / "sign.key").read_text(encoding="utf-8"), "cert": (self.folder / "sign.pem").read_text(encoding="utf-8"),
                "access-token-duration": 3600, "refresh-token-duration": 1209600, "code-duration": 600, "refresh-token-rolling": True,
                "refresh-token-one-use": "always", "allow-non-oidc": False, "auth-type-code-enabled": True, "auth-type-refresh-enabled": True,
                "auth-type-device-enabled": True, "device-authorization-expiration": 600, "device-authorization-interval": 2,
                "pkce-allowed": True, "pkce-required": True, "pkce-required-public-client": True, "pkce-method-plain-allowed": False,
                "subject-type": "public", "introspection-revocation-allowed": True, "introspection-revocation-allow-target-client": True,
                "auth-type-token-enabled": False, "auth-type-password-enabled": False, "auth-type-client-enabled": False,
                "scope": [], "name-claim": "no", "jwks-show": True}})
        admin.must("POST", "/api/user/", {"username": "ada", "name": "Ada", "email": "ada@example.org", "enabled": True, "password": "password",
                                          "scope": ["openid"]})
        self.client = {"client_id": "muster", "name": "Muster", "enabled": True, "confidential": False, "scope": [],
                       "redirect_uri": ["http://127.0.0.1/callback"], "token_endpoint_auth_method": ["none"],
                       "authorization_type": ["code", "refresh_token", "device_authorization"]}
        admin.must("POST", "/api/client/", self.client)
        ada = self.log_in("ada")
        ada.must("PUT", "/api/auth/grant/muster/", {"scope": "openid"})

    def allow_redirect(self, uri):
        """Glewlwyd compares ports of loopback too."""
        self.log_in("admin").must("PUT", "/api/client/muster", {**self.client, "redirect_uri": [uri]})

    def sign_in(self, url):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        self.allow_redirect(query["redirect_uri"])
        code, body, location = self.log_in("ada").ask("GET", url + "&g_continue")
        if code != 302:
            raise AssertionError(f"{url}: {code} {body}")
        return location

    def enter_code(self, user_code):
        code, body, location = self.log_in("ada").ask("GET", f"{self.url}/device?code={user_code}&g_continue")
        if code != 302:
            raise AssertionError(f"the code {user_code}: {code} {body}")
        return location
