"""`muster login` at issuers that others have written: Debian's glewlwyd and django-oauth-toolkit; and tokens that Authlib forges."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import issuers  # noqa: E402
from cluster import wait_until  # noqa: E402
from fake_issuer import FakeIssuer, openssl  # noqa: E402
from glewlwyd_issuer import GlewlwydIssuer  # noqa: E402
from logins import ClusterWithIssuers, Person  # noqa: E402

NOT_ALLOWED = 4  # exit code
REMEMBER = 'printf %s "$1" >{home}/url.new && mv {home}/url.new {home}/url'


class AtAnIssuer(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-issuers-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def cluster_with(self, issuer):
        self.cluster = ClusterWithIssuers(None, issuer.ca)
        self.addCleanup(self.cluster.close)
        self.cluster.apply_users([issuer.url], {})
        self.words = ("login", self.cluster.endpoint["grpc_join"], "--ca", self.cluster.dir / "security" / "ca.pem")

    def with_browser(self, person, sign_in, *more):
        """`sign_in` gets the address that the browser is to open, and gives back where it is sent from there."""
        (person.home / "url").unlink(missing_ok=True)
        process = person.begin(*self.words, *more)
        wait_until((person.home / "url").exists, "the browser is opened")
        with urllib.request.urlopen(sign_in((person.home / "url").read_text(encoding="utf-8")), timeout=30) as page:
            self.assertEqual(page.status, 200)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def admit(self, issuer, person, sign_in):
        """The first try is refused, and names who the person is: that is what an admin puts into the user file."""
        code, _, err = self.with_browser(person, sign_in)
        self.assertEqual(code, NOT_ALLOWED, err)
        subject = re.search(r"no user of this cluster has the identity (\S+) of " + re.escape(issuer.url), err)[1]
        self.cluster.apply_users([issuer.url], {"ada": (issuer.url, subject)})
        code, out, err = self.with_browser(person, sign_in)
        self.assertEqual(code, 0, err)
        self.assertIn("as ada", out)
        self.assertIn("user ada in cluster ", person.muster("whoami").stdout)

    def test_glewlwyd(self):
        for key in ("RS256", "ES256"):
            with self.subTest(key):
                issuer = self.stack.enter_context(GlewlwydIssuer(self.root / key, key))
                self.cluster_with(issuer)
                ada = Person(self.root, f"ada-{key}", REMEMBER)
                self.admit(issuer, ada, issuer.sign_in)
                # By a code, with polls in between.
                process = ada.begin(*self.words, "--device")
                lines = []
                while not (lines and "enter the code" in lines[-1]):
                    lines.append(process.stderr.readline())
                issuer.enter_code(lines[-1].split()[-1])
                out, err = process.communicate(timeout=60)
                self.assertIn("as ada", out, err)
                # Glewlwyd answers a refresh without an ID token: the login lasts as long as its certificate.
                ada.muster("whoami")
                self.assertEqual(ada.login_file()["refresh_token"], "")
                self.assertIn("user ada", ada.muster("whoami").stdout)

    def test_django_oauth_toolkit(self):
        issuer = self.stack.enter_context(issuers.DjangoIssuer(self.root / "django"))
        self.cluster_with(issuer)
        ada, thief = Person(self.root, "ada", REMEMBER), Person(self.root, "thief", REMEMBER)
        self.admit(issuer, ada, issuer.sign_in)
        seen = set()
        for _ in range(3):
            seen.add((ada.login_file()["refresh_token"], ada.certificate("-serial")))
            ada.muster("whoami")
        self.assertEqual(len(seen), 3, "each command renews, and the refresh token rotates")
        shutil.copytree(ada.config, thief.config)
        ada.muster("whoami")
        for person in (thief, ada):
            done = person.muster("whoami", check=False)
            self.assertEqual(done.returncode, NOT_ALLOWED, done.stdout + done.stderr)
            self.assertIn("next: muster login", done.stderr)
        issuer.rotate()
        wait_until(lambda: self.with_browser(ada, issuer.sign_in)[0] == 0, "the new key is fetched, a minute later at most", timeout=90)
        self.assertIn("user ada", ada.muster("whoami").stdout)

    def test_tokens_that_authlib_forges(self):
        issuer = self.stack.enter_context(FakeIssuer(self.root / "hostile"))
        forger = self.stack.enter_context(issuers.Forger(issuer.keys[0]))
        issuer.id_token = lambda subject, nonce=None: forger.token(issuer.url, subject, nonce)
        self.cluster_with(issuer)
        self.cluster.apply_users([issuer.url], {"ada": (issuer.url, "1")})
        ada = Person(self.root, "ada", f'exec curl -sS -L --max-time 60 --cacert {issuer.ca} "$1" >/dev/null 2>&1')
        now = int(time.time())
        cases = {
            "signed by 'none'": {"alg": "none"},
            "signed by 'HS256'": {"alg": "HS256"},
            "signed by 'RS512'": {"alg": "RS512"},
            "signature is not the issuer's": {"key": "another"},
            "no RS256 key 'unheard-of'": {"kid": "unheard-of"},
            "for client 'other'": {"claims": {"aud": "other"}},
            "of the issuer 'https://evil.example'": {"claims": {"iss": "https://evil.example"}},
            "client 'other' asked for it": {"claims": {"azp": "other"}},
            "another login (nonce)": {"claims": {"nonce": "guessed"}},
            "it expired at": {"claims": {"iat": now - 700, "exp": now - 302}},
            "not valid before": {"claims": {"nbf": now + 400}},
        }
        for says, forgery in cases.items():
            with self.subTest(says):
                forger.forgery = forgery
                done = ada.muster(*self.words, check=False)
                self.assertEqual(done.returncode, NOT_ALLOWED, done.stdout + done.stderr)
                self.assertIn(says, done.stderr)
        for claims in ({}, {"iat": now + 290, "exp": now + 600}, {"nbf": now + 290}):
            forger.forgery = {"claims": claims}
            self.assertIn("as ada", ada.muster(*self.words).stdout)


if __name__ == "__main__":
    unittest.main()
