"""People sign in to the status page by OpenID Connect and see what their roles let them see; strangers, other sites and an issuer that
lies get nothing."""

import contextlib
import http.client
import json
import pathlib
import shutil
import ssl
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from browser import Browser  # noqa: E402
from cluster import run  # noqa: E402
from fake_issuer import FakeIssuer  # noqa: E402
from logins import ClusterWithIssuers  # noqa: E402

SESSION, BEGUN = "__Host-muster-session", "__Host-muster-signin"
HARD = "Path=/; Max-Age={}; Secure; HttpOnly; SameSite=Lax"


class Visitor:
    """A browser's cookies and connections, without a browser."""

    def __init__(self, address, authority, credentials=None):
        self.address, self.cookies = address, {}
        self.context = ssl.create_default_context(cafile=authority)
        self.context.check_hostname = False  # the name in the certificate is coordinator.muster
        if credentials:
            self.context.load_cert_chain(credentials / "cert.pem", credentials / "key.pem")

    def ask(self, path, method="GET", stream=False, **fields):
        host, port = self.address.rsplit(":", 1)
        connection = http.client.HTTPSConnection(host, int(port), context=self.context, timeout=20)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, headers={**({"Cookie": cookies} if cookies else {}), **fields})
        answer = connection.getresponse()
        answer.set = [value for name, value in answer.getheaders() if name.lower() == "set-cookie"]
        for cookie in answer.set:
            name, value = cookie.split(";")[0].split("=", 1)
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        if not stream:
            answer.text = answer.read().decode()
            connection.close()
        return answer

    def to_issuer(self, **query):
        """The address at the issuer that signing in leads to."""
        answer = self.ask("/auth/sign-in?" + urllib.parse.urlencode(query))
        return answer.headers["Location"] if answer.status == 303 else answer

    def at_issuer(self, url, issuer):
        """What the issuer, which asks nobody, leads to."""
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPSConnection(parts.netloc, context=ssl.create_default_context(cafile=issuer.ca), timeout=20)
        connection.request("GET", f"{parts.path}?{parts.query}")
        back = urllib.parse.urlsplit(connection.getresponse().headers["Location"])
        return f"{back.path}?{back.query}"

    def sign_in(self, issuer, **query):
        return self.ask(self.at_issuer(self.to_issuer(**query), issuer))

    def session(self):
        return json.loads(self.ask("/auth/session").text)

    def stream(self, query=""):
        """The stream, after its first message: names of the parts."""
        answer = self.ask("/api/v1/events" + query, stream=True)
        if answer.status != 200:
            answer.text = answer.read().decode()
            return answer, []
        line = b""
        while not line.startswith(b"data: "):
            line = answer.readline()
        return answer, [key for key, _ in json.loads(line[6:])["set"]]


class PageSignIn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-page-sign-in-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.issuer = stack.enter_context(FakeIssuer(cls.root / "issuer"))
        cls.cluster = ClusterWithIssuers(None, cls.issuer.ca)
        cls.addClassCleanup(cls.cluster.close)
        queues = cls.cluster.path("queues.yaml")
        queues.write_text("queues: {default: , nlp: , vision: }\n", encoding="utf-8")
        cls.cluster.muster("queues", "apply", queues)
        cls.apply()
        cls.jobs = {queue: cls.submit(f"train-{queue}", queue) for queue in ("nlp", "vision")}
        cls.authority = cls.cluster.dir / "security" / "ca.pem"

    @classmethod
    def apply(cls, disabled=(), eve_sees=None):
        subjects = {"ada": "1", "bob": "2", "zoe": "3", "eve": "4"}
        file = cls.cluster.path("users.yaml")
        file.write_text(json.dumps({
            "issuers": [{"url": cls.issuer.url, "client_id": "muster"}],
            "users": {name: {"identity": {"issuer": cls.issuer.url, "subject": subject}, "disabled": name in disabled}
                      for name, subject in subjects.items()},
            "roles": [{"role": "submitter", "queues": ["nlp"], "users": ["ada"]}, {"role": "viewer", "users": ["bob"]},
                      {"role": "viewer", "users": ["eve"], **({"queues": [eve_sees]} if eve_sees else {})}]}), encoding="utf-8")
        cls.cluster.muster("users", "apply", file)

    @classmethod
    def submit(cls, name, queue):
        file = cls.cluster.path(f"{name}.json")
        file.write_text(json.dumps({"name": name, "workdir": str(cls.root), "command": ["sleep", "60"], "queue": queue,
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        return json.loads(cls.cluster.muster("submit", "-o", "json", file).stdout)["id"]

    def setUp(self):
        self.issuer.subject, self.issuer.access_denied = "1", False
        self.issuer.claims, self.issuer.redirect, self.issuer.documents = (lambda c: c), (lambda f: f), {}

    def visitor(self, **options):
        return Visitor(self.cluster.endpoint["http_tls"], self.authority, **options)

    def signed_in(self, subject="1"):
        self.issuer.subject = subject
        visitor = self.visitor()
        self.assertEqual(visitor.sign_in(self.issuer).status, 303)
        return visitor

    def test_a_stranger_gets_the_empty_page_and_the_way_to_sign_in(self):
        stranger = self.visitor()
        for path in ("/", "/jobs/x", "/assets/page.js"):
            self.assertEqual(stranger.ask(path).status, 200, path)
        for path in ("/api/v1/events", f"/api/v1/events?job={self.jobs['nlp']}", f"/api/v1/log?job={self.jobs['nlp']}", "/metrics", "/sd",
                     "/healthz", "/nothing"):
            self.assertEqual(stranger.ask(path).status, 403, path)
            forged = self.visitor()
            forged.cookies[SESSION] = "x" * 43
            self.assertEqual(forged.ask(path).status, 403, path)
        self.assertEqual(stranger.session(), {"user": None, "issuers": [self.issuer.url]})

    def test_signing_in_sets_a_session_that_no_script_and_no_other_site_can_use(self):
        ada = self.visitor()
        url = ada.to_issuer(to="/jobs/train-nlp?x=1")
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        self.assertEqual((asked["response_type"], asked["code_challenge_method"], asked["redirect_uri"]),
                         ("code", "S256", f"https://{ada.address}/auth/callback"))
        self.assertGreaterEqual(min(len(asked[name]) for name in ("state", "nonce", "code_challenge")), 43)
        done = ada.ask(ada.at_issuer(url, self.issuer))
        self.assertEqual((done.status, done.headers["Location"]), (303, "/jobs/train-nlp?x=1"))
        self.assertEqual([cookie.split("; ", 1)[1] for cookie in done.set], [HARD.format(300), HARD.format(0)])
        self.assertEqual(list(ada.cookies), [SESSION])
        session = ada.session()
        self.assertEqual(session["user"], "ada")
        self.assertLess(abs(session["until_unix_ms"] / 1000 - time.time() - 300), 30)
        entry = self.cluster.audit("SignIn")[0]
        self.assertEqual((entry["actor"], entry["outcome"], entry["object"]), ("user/ada", "OK", f"1 of {self.issuer.url}"))
        self.assertTrue(entry["peer"].startswith("ipv4:127.0.0.1:"), entry)

    def test_each_sees_what_the_roles_say_and_the_rest_is_not_there(self):
        ada, bob = self.signed_in("1"), self.signed_in("2")
        _, parts = ada.stream()
        self.assertIn(f"job/{self.jobs['nlp']}", parts)
        self.assertNotIn(f"job/{self.jobs['vision']}", parts)
        _, parts = bob.stream()
        self.assertLessEqual({f"job/{job}" for job in self.jobs.values()}, set(parts))
        for path in ("/api/v1/events?job=", "/api/v1/log?job="):
            hidden, missing = (ada.ask(path + name) for name in ("train-vision", "train-nobody"))
            self.assertEqual((hidden.status, hidden.text), (404, missing.text.replace("nobody", "vision")))
            self.assertEqual(ada.ask(path + self.jobs["vision"]).status, 404)
        self.assertEqual(ada.stream("?job=train-nlp")[0].status, 200)
        events = [value for value in ada.stream()[1] if value.startswith("event/")]
        self.assertLess(len(events), len([value for value in bob.stream()[1] if value.startswith("event/")]))
        self.assertEqual(ada.ask("/metrics").status, 403)

    def test_a_certificate_serves_as_well(self):
        admin = self.visitor(credentials=self.cluster.dir / "security" / "admin")
        self.assertLessEqual({f"job/{job}" for job in self.jobs.values()}, set(admin.stream()[1]))
        self.assertEqual(admin.ask("/metrics").status, 200)
        node = self.cluster.path("scraper")
        run("muster", "certs", "issue", "--dir", self.cluster.dir, "--role", "scraper", "--name", "p", "--out", node)
        self.assertEqual(self.visitor(credentials=node).ask("/api/v1/events").status, 403)

    def test_signing_out_needs_the_token_of_the_session_and_ends_its_streams(self):
        ada = self.signed_in()
        stream, _ = ada.stream()
        origin, token = f"https://{ada.address}", ada.session()["csrf"]
        for fields in ({"Origin": origin}, {"Origin": origin, "X-CSRF-Token": "x"}, {"X-CSRF-Token": token},
                       {"Origin": "https://evil.example", "X-CSRF-Token": token}):
            self.assertEqual(ada.ask("/auth/sign-out", "POST", **fields).status, 403, fields)
        self.assertEqual(ada.ask("/auth/sign-out", **{"Origin": origin, "X-CSRF-Token": token}).status, 404, "by POST alone")
        self.assertEqual(ada.session()["user"], "ada")
        kept = dict(ada.cookies)
        self.assertEqual(ada.ask("/auth/sign-out", "POST", **{"Origin": origin, "X-CSRF-Token": token}).status, 200)
        self.assertEqual(ada.cookies, {})
        self.assert_ends(stream)
        ada.cookies = kept
        self.assertEqual(ada.ask("/api/v1/events").status, 403, "a copy of the cookie is of no use either")

    def assert_ends(self, stream, within_s=3):
        begin = time.monotonic()
        while stream.readline():
            self.assertLess(time.monotonic() - begin, within_s, "the stream goes on")

    def test_a_user_who_is_disabled_revoked_or_has_another_role_loses_the_stream(self):
        self.addCleanup(self.apply)
        for change, code in ((lambda: self.apply(eve_sees="vision"), 200), (lambda: self.apply(disabled=["eve"]), 403),
                             (lambda: run("muster", "certs", "revoke", "eve", "--role", "user", "--dir", self.cluster.dir), 403)):
            self.apply()
            eve = self.signed_in("4")
            stream, parts = eve.stream()
            self.assertIn(f"job/{self.jobs['nlp']}", parts)
            change()
            self.assert_ends(stream, within_s=6)
            again, parts = eve.stream()
            self.assertEqual(again.status, code)
            self.assertNotIn(f"job/{self.jobs['nlp']}", parts)

    def test_an_answer_that_is_not_the_issuers_to_this_browser_signs_nobody_in(self):
        def refused(answer, code, text):
            self.assertEqual(answer.status, code, answer.text)
            self.assertIn(text, answer.text)
            self.assertNotIn(SESSION, visitor.cookies)

        visitor = self.visitor()
        refused(visitor.ask("/auth/callback?code=1&state=2"), 403, "has not begun to sign in")
        back = visitor.at_issuer(visitor.to_issuer(), self.issuer)
        stolen, visitor = back, self.visitor()
        visitor.to_issuer()
        refused(visitor.ask(stolen), 403, "answers another request (state)")
        for change, text in (({"state": "x"}, "state"), ({"iss": "https://evil.example"}, "of another issuer"), ({"code": "x"}, "invalid_grant"),
                             ({"code": ""}, "no code")):
            visitor = self.visitor()
            self.issuer.redirect = lambda fields, change=change: {**fields, **change}
            refused(visitor.sign_in(self.issuer), 403, text)
        self.issuer.redirect = lambda fields: fields
        for claims, text in (({"nonce": "x"}, "nonce"), ({"nonce": None}, "nonce"), ({"aud": "other"}, "for client 'other'"), ({"iss": "https://evil"}, "ID token is refused"),
                             ({"sub": "9"}, "no user of this cluster has the identity 9 of"), ({"sub": "3"}, "user zoe has no role")):
            visitor = self.visitor()
            self.issuer.claims = lambda given, claims=claims: {key: value for key, value in {**given, **claims}.items() if value is not None}
            refused(visitor.sign_in(self.issuer), 403, text)
        self.issuer.claims = lambda given: given
        self.issuer.access_denied = True
        visitor = self.visitor()
        refused(visitor.sign_in(self.issuer), 403, "access_denied: not you")
        self.issuer.access_denied = False
        refused(visitor.ask("/auth/sign-in?issuer=https://evil.example"), 403,
                "the user file does not list the issuer URL https://evil.example;")
        self.assertGreater(len([entry for entry in self.cluster.audit("SignIn") if entry["outcome"] != "OK"]), 8)

    def test_a_code_counts_once_and_a_redirect_never_leads_elsewhere(self):
        ada = self.visitor()
        url = ada.to_issuer(to="//evil.example/x")
        begun = dict(ada.cookies)
        back = ada.at_issuer(url, self.issuer)
        self.assertEqual(ada.ask(back).headers["Location"], "/")
        again = self.visitor()
        again.cookies = begun
        self.assertEqual(again.ask(back).status, 403)
        for to in ("https://evil.example", "/\\evil.example", "evil", "/a\r\nSet-Cookie: x=1", "/" + "x" * 2000):
            self.assertEqual(self.visitor().sign_in(self.issuer, to=to).headers["Location"], "/", to)

    def test_an_issuer_that_is_slow_delays_nobody_who_has_signed_in(self):
        ada = self.signed_in()
        self.issuer.documents = {"/token": lambda handler: time.sleep(5)}
        slow = self.visitor()
        back = slow.at_issuer(slow.to_issuer(), self.issuer)
        begin = time.monotonic()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(slow.ask(back).status))
        thread.start()
        self.assertEqual(ada.session()["user"], "ada")
        self.assertTrue(ada.stream()[1])
        self.assertLess(time.monotonic() - begin, 3)
        thread.join()
        self.assertEqual(answers, [503])

    def test_a_browser_signs_in_by_the_link_on_the_page_and_out_again(self):
        with Browser(flags=("--ignore-certificate-errors",)) as browser:
            page = browser.open(f"https://{self.cluster.endpoint['http_tls']}/jobs/train-nlp")
            page.wait_for("!!document.querySelector('a.sign-in')", "the way to sign in")
            page.evaluate("document.querySelector('a.sign-in').click()")
            page.wait_for("!!document.querySelector('#person button')", "who has signed in")
            self.assertIn("ada", page.text("#person"))
            self.assertEqual(page.evaluate("location.pathname"), "/jobs/train-nlp")
            self.assertEqual(page.evaluate("document.cookie"), "", "scripts see no cookie")
            page.evaluate("document.querySelector('#person button').click()")
            page.wait_for("!!document.querySelector('a.sign-in')", "the way to sign in again")
            self.assertEqual(page.troubles, [])


if __name__ == "__main__":
    unittest.main()
