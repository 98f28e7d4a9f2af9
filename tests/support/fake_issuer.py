"""An issuer of OpenID Connect on loopback, over HTTPS with a certificate of its own, and faults on demand.

  with FakeIssuer(folder) as issuer:
      issuer.subject = "1"                       # who signs in, without being asked
      issuer.claims = lambda claims: {**claims, "aud": "other"}      # what its next ID tokens say

Only the standard library; keys are openssl's.
"""

import base64
import hashlib
import hmac
import http.server
import json
import secrets
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

CLIENT = "muster"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], input=data, capture_output=True, check=True, timeout=60).stdout


class Key:
    def __init__(self, folder, kid, kind="RS256"):
        self.kid, self.kind, self.path = kid, kind, folder / f"{kid}.key"
        if kind == "RS256":
            openssl("genrsa", "-out", self.path, 2048)
        else:
            openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.path)

    def jwk(self):
        if self.kind == "RS256":
            modulus = openssl("rsa", "-in", self.path, "-noout", "-modulus").decode().strip().split("=")[1]
            return {"kty": "RSA", "kid": self.kid, "use": "sig", "alg": "RS256", "n": b64(bytes.fromhex(modulus)), "e": "AQAB"}
        point = openssl("ec", "-in", self.path, "-pubout", "-outform", "DER")[-64:]
        return {"kty": "EC", "kid": self.kid, "use": "sig", "crv": "P-256", "x": b64(point[:32]), "y": b64(point[32:])}

    def public_pem(self):
        return openssl("pkey", "-in", self.path, "-pubout")

    def sign(self, text):
        signature = openssl("dgst", "-sha256", "-sign", self.path, data=text)
        if self.kind == "RS256":
            return signature
        numbers, at = [], 2
        for _ in range(2):  # SEQUENCE {INTEGER r, INTEGER s}
            size = signature[at + 1]
            numbers.append(int.from_bytes(signature[at + 2:at + 2 + size], "big"))
            at += 2 + size
        return b"".join(number.to_bytes(32, "big") for number in numbers)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that has gone


class FakeIssuer:
    """`asked` lists (path, fields) of all requests; `polls` the times of those for a code of the device flow."""

    def __init__(self, folder, key="RS256"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.keys = [Key(folder, "first", key)]
        self.asked, self.polls, self.seen_at_redirect = [], [], []
        self.subject = "1"
        self.claims = lambda claims: claims
        self.header = lambda header: header
        self.signing = "own"         # or: none, HS256, stranger
        self.documents = {}          # path: function(handler) that answers in place of the issuer
        self.redirect = lambda fields: fields
        self.before_redirect = []    # changes of the redirect's fields that are tried first
        self.device_answers = []     # the next answers to polls: "authorization_pending", "slow_down", ...
        self.access_denied = False
        self.codes, self.refreshes, self.families = {}, {}, {}
        self.lock = threading.Lock()
        self.ca = folder / "tls.pem"

    def __enter__(self):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
                "-keyout", self.folder / "tls.key", "-out", self.ca, "-subj", "/CN=issuer", "-addext",
                "subjectAltName=IP:127.0.0.1")

        class Handler(_Handler):
            issuer = self
        self.server = _Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, self.folder / "tls.key")
        # The handshake is each connection's own thread's.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}/realm"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def count(self, path):
        return sum(asked == path for asked, _ in self.asked)

    def rotate(self):
        self.keys = [Key(self.folder, f"key-{len(self.asked)}", self.keys[0].kind)]

    def discovery(self):
        return {"issuer": self.url, "authorization_endpoint": self.url + "/auth", "token_endpoint": self.url + "/token",
                "jwks_uri": self.url + "/keys", "device_authorization_endpoint": self.url + "/device",
                "revocation_endpoint": self.url + "/revoke", "scopes_supported": ["openid", "offline_access"]}

    def id_token(self, subject, nonce=None):
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "sub": subject, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8)}
        if nonce:
            claims["nonce"] = nonce
        key = Key(self.folder, self.keys[0].kid + "-stranger", self.keys[0].kind) if self.signing == "stranger" else self.keys[0]
        header = self.header({"alg": key.kind if self.signing in ("own", "stranger") else self.signing, "typ": "JWT",
                              "kid": self.keys[0].kid})
        text = ".".join(b64(json.dumps(part).encode()) for part in (header, self.claims(claims))).encode()
        if self.signing == "none":
            return text.decode() + "."
        if self.signing == "HS256":
            return f"{text.decode()}.{b64(hmac.new(key.public_pem(), text, hashlib.sha256).digest())}"
        return f"{text.decode()}.{b64(key.sign(text))}"

    def grant(self, subject, family, nonce=None):
        token = secrets.token_urlsafe(16)
        self.refreshes[token] = {"family": family, "subject": subject, "used": False}
        self.families.setdefault(family, True)
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token(subject, nonce),
                     "refresh_token": token}

    def token(self, fields):
        with self.lock:
            refused = lambda error: (400, {"error": error})
            if fields.get("client_id") != CLIENT:
                return 401, {"error": "invalid_client"}
            kind = fields.get("grant_type", "")
            if kind == "authorization_code":
                code = self.codes.pop(fields.get("code"), None)
                if not code or code["redirect_uri"] != fields.get("redirect_uri") or \
                        b64(hashlib.sha256(fields.get("code_verifier", "").encode()).digest()) != code["challenge"]:
                    return refused("invalid_grant")
                return self.grant(self.subject, fields["code"], code["nonce"])
            if kind == "refresh_token":
                held = self.refreshes.get(fields.get("refresh_token"))
                if not held or held["used"] or not self.families[held["family"]]:
                    if held:
                        self.families[held["family"]] = False  # a copy is in use: all of the family end
                    return refused("invalid_grant")
                held["used"] = True
                return self.grant(held["subject"], held["family"])
            if kind == "urn:ietf:params:oauth:grant-type:device_code":
                self.polls.append(time.monotonic())
                answer = self.device_answers.pop(0) if self.device_answers else "granted"
                return refused(answer) if answer != "granted" else self.grant(self.subject, fields["device_code"])
            return refused("unsupported_grant_type")


class _Handler(http.server.BaseHTTPRequestHandler):
    issuer = None

    def do_GET(self):
        self.answer("")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

    def answer(self, body):
        issuer, parts = self.issuer, urllib.parse.urlsplit(self.path)
        fields = dict(urllib.parse.parse_qsl(body or parts.query, keep_blank_values=True))
        path = parts.path.removeprefix("/realm")
        issuer.asked.append((path, fields))
        if path in issuer.documents:
            return issuer.documents[path](self)
        if path == "/.well-known/openid-configuration":
            return self.send(200, issuer.discovery())
        if path == "/keys":
            return self.send(200, {"keys": [key.jwk() for key in issuer.keys]})
        if path == "/auth":
            return self.authorize(fields)
        if path == "/token":
            return self.send(*issuer.token(fields))
        if path == "/device":
            return self.send(200, {"device_code": secrets.token_urlsafe(8), "user_code": "WDJB-MJHT", "expires_in": 60,
                                   "interval": 1, "verification_uri": issuer.url + "/enter"})
        if path == "/revoke":
            held = issuer.refreshes.get(fields.get("token"))
            if held:
                issuer.families[held["family"]] = False
            return self.send(200, {})
        return self.send(404, {})

    def authorize(self, fields):
        issuer = self.issuer
        redirect = urllib.parse.urlsplit(fields.get("redirect_uri", ""))
        if redirect.hostname != "127.0.0.1" or fields.get("code_challenge_method") != "S256" or \
                fields.get("response_type") != "code" or "openid" not in fields.get("scope", "").split():
            return self.send(400, {"error": "invalid_request"})
        code = secrets.token_urlsafe(16)
        issuer.codes[code] = {"redirect_uri": fields["redirect_uri"], "challenge": fields["code_challenge"],
                              "nonce": fields.get("nonce")}
        back = {"code": code, "state": fields["state"], "iss": issuer.url}
        if issuer.access_denied:
            back = {"error": "access_denied", "error_description": "not you", "state": fields["state"]}
        back = issuer.redirect(back)
        for change in issuer.before_redirect:
            url = fields["redirect_uri"] + "?" + urllib.parse.urlencode({**back, **change})
            try:
                issuer.seen_at_redirect.append(urllib.request.urlopen(url, timeout=10).status)
            except urllib.error.HTTPError as refused:
                issuer.seen_at_redirect.append(refused.code)
        self.send_response(302)
        self.send_header("Location", fields["redirect_uri"] + "?" + urllib.parse.urlencode(back))
        self.end_headers()

    def send(self, code, document):
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
