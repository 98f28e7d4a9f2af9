"""People log in by OpenID Connect: by a browser and by a code, renewals that nobody notices, and an issuer that is hostile, slow or
away. The issuer is tests/support/fake_issuer.py; a program in place of xdg-open is the browser."""

import contextlib
import datetime
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import run, wait_until  # noqa: E402
from fake_issuer import FakeIssuer  # noqa: E402
from logins import ClusterWithIssuers, Person  # noqa: E402

BAD_USAGE, NOT_ALLOWED, UNREACHABLE, CONFLICT = 2, 4, 5, 6  # exit codes
# Follows redirects, also to the program that waits.
BROWSER = 'exec curl -sS -L --max-time 60 --cacert {authorities} "$1" >{home}/page 2>&1'
ISSUERS = ("good", "elliptic", "slow", "huge", "down")


class Login(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-login-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.issuers = {name: stack.enter_context(FakeIssuer(cls.root / name, "ES256" if name == "elliptic" else "RS256")) for name in ISSUERS}
        cls.good = cls.issuers["good"]
        cls.authorities = cls.root / "issuers.pem"
        cls.authorities.write_text("".join(issuer.ca.read_text(encoding="utf-8") for issuer in cls.issuers.values()), encoding="utf-8")
        cls.cluster = ClusterWithIssuers(None, cls.authorities)
        cls.addClassCleanup(cls.cluster.close)
        identities = {name: (cls.good.url, subject) for name, subject in (("ada", "1"), ("bob", "2"), ("eve", "3"), ("zoe", "4"))}
        identities.update({f"of-{name}": (cls.issuers[name].url, "1") for name in ISSUERS[1:]})
        cls.identities = identities
        cls.apply()
        cls.ca = cls.cluster.dir / "security" / "ca.pem"
        cls.people = 0

    @classmethod
    def apply(cls, disabled=(), **accounts):
        accounts = {"here": "root", "twin-1": "sys", "twin-2": "sys", **accounts}
        cls.cluster.apply_users([issuer.url for issuer in cls.issuers.values()], cls.identities, disabled=["eve", *disabled],
                                without_role=["zoe"], accounts=accounts)

    def setUp(self):
        fresh = vars(FakeIssuer(self.root / "fresh"))
        for issuer in self.issuers.values():
            for name in ("claims", "header", "signing", "redirect", "access_denied", "subject", "documents"):
                setattr(issuer, name, fresh[name] if name != "documents" else {})
            issuer.before_redirect, issuer.seen_at_redirect, issuer.device_answers, issuer.polls = [], [], [], []

    def person(self):
        type(self).people += 1
        return Person(self.root, f"person-{self.people}", BROWSER.format(authorities=self.authorities, home="{home}"))

    def log_in(self, person, *words, issuer="good", **options):
        return person.muster("login", self.cluster.endpoint["grpc_join"], "--ca", self.ca, "--issuer", self.issuers[issuer].url, *words,
                             **options)

    def refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_a_browser_logs_in_and_later_commands_use_it(self):
        ada = self.person()
        self.assertIn("Logged in to cluster lab as ada until ", self.log_in(ada).stdout)
        self.assertIn("user ada in cluster ", ada.muster("whoami").stdout)
        self.assertIn("goes on in the terminal", (ada.home / "page").read_text(encoding="utf-8"))
        for path, mode in ((ada.files(), 0o700), (ada.files().parent, 0o700), (ada.files() / "login.json", 0o600), (ada.files() / "key.pem", 0o600)):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, path)
        self.assertIn("URI:muster://lab/user/ada\n", ada.certificate("-ext", "subjectAltName"))
        self.assertIn("TLS Web Client Authentication\n", ada.certificate("-ext", "extendedKeyUsage"))
        begin, end = (datetime.datetime.strptime(line.split("=")[1], "%b %d %H:%M:%S %Y %Z")
                      for line in ada.certificate("-dates").strip().splitlines())
        self.assertEqual(end - begin, datetime.timedelta(minutes=10), "five minutes, and five for clocks that are behind")
        login = self.cluster.audit()[0]
        self.assertEqual((login["actor"], login["outcome"], login["object"]), ("user/ada", "OK", f"1 of {self.good.url}"))
        self.assertIn("certificate ", login["detail"])
        # Explicit flags and a cluster of this machine go before it.
        self.assertIn("there is no cluster in", ada.muster("get", "--dir", ada.home / "none", check=False).stderr)
        self.assertIn("there is no cluster in", ada.muster("get", check=False, MUSTER_DIR=str(ada.home / "none")).stderr)

    def test_a_certificate_is_renewed_silently_with_a_refresh_token_that_rotates(self):
        ada = self.person()
        self.log_in(ada)
        seen = set()
        for _ in range(3):
            seen.add((ada.login_file()["refresh_token"], ada.certificate("-serial")))
            done = ada.muster("whoami")
            self.assertEqual((done.stderr, "user ada" in done.stdout), ("", True))
        self.assertEqual(len(seen), 3)

    def test_commands_at_the_same_time_use_a_refresh_token_once(self):
        ada = self.person()
        self.log_in(ada)
        outcomes = []
        threads = [threading.Thread(target=lambda: outcomes.append(ada.muster("whoami", check=False).returncode)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(outcomes, [0] * 4)

    def test_the_reuse_of_a_refresh_token_ends_the_session(self):
        ada, thief = self.person(), self.person()
        self.log_in(ada)
        shutil.copytree(ada.config, thief.config)
        ada.muster("whoami")
        self.refused(thief.muster("whoami", check=False), NOT_ALLOWED, "the login of ada to cluster lab has ended: the issuer says invalid_grant",
                     "next: muster login")
        self.refused(ada.muster("whoami", check=False), NOT_ALLOWED, "has ended", "next: muster login")
        self.assertEqual(ada.login_file()["refresh_token"], "")
        self.assertFalse((ada.files() / "key.pem").exists())
        self.refused(ada.muster("whoami", check=False), NOT_ALLOWED, "not logged in to cluster lab any more", "next: muster login")
        ada.muster("login")  # address, authority and issuer are known
        self.assertIn("user ada", ada.muster("whoami").stdout)

    def test_an_issuer_that_is_away_leaves_a_good_certificate_in_use(self):
        ada = self.person()
        self.log_in(ada)
        self.good.documents["/token"] = lambda handler: handler.send(503, {})
        self.assertIn("user ada", ada.muster("whoami").stdout)

    def test_over_ssh_a_code_logs_in_and_polls_slow_down(self):
        ada = self.person()
        self.good.device_answers = ["authorization_pending", "slow_down"]
        done = self.log_in(ada, SSH_CONNECTION="10.0.0.2 1 10.0.0.1 22")
        self.assertIn("/enter\nand enter the code WDJB-MJHT", done.stderr)
        first, second = (b - a for a, b in zip(self.good.polls, self.good.polls[1:]))
        self.assertGreaterEqual(first, 1)
        self.assertGreaterEqual(second, 6)
        self.assertIn("user ada", ada.muster("whoami").stdout)

    def test_a_code_that_is_refused_logs_nobody_in(self):
        self.good.device_answers = ["access_denied"]
        self.refused(self.log_in(self.person(), "--device", check=False), NOT_ALLOWED, "access_denied", "next: muster login")

    def test_both_kinds_of_keys_are_accepted(self):
        person = self.person()
        self.log_in(person, issuer="elliptic")
        self.assertIn("user of-elliptic", person.muster("whoami").stdout)

    def test_every_hostile_token_is_refused_and_recorded(self):
        now = int(time.time())
        hostile = {
            "signed by 'none'": {"signing": "none"},
            "signed by 'HS256'": {"signing": "HS256"},
            "signature is not the issuer's": {"signing": "stranger"},
            "no RS256 key 'unheard-of'": {"header": lambda header: {**header, "kid": "unheard-of"}},
            "for client 'other'": {"claims": lambda claims: {**claims, "aud": "other"}},
            "of the issuer 'https://evil.example'": {"claims": lambda claims: {**claims, "iss": "https://evil.example"}},
            "client 'other' asked for it": {"claims": lambda claims: {**claims, "aud": ["muster", "other"], "azp": "other"}},
            "another login (nonce)": {"claims": lambda claims: {**claims, "nonce": "f" * 64}},
            "it expired at": {"claims": lambda claims: {**claims, "iat": now - 700, "exp": now - 302}},
            "later than the clock here": {"claims": lambda claims: {**claims, "iat": now + 400, "exp": now + 700}},
            "not valid before": {"claims": lambda claims: {**claims, "nbf": now + 400}},
            "(sub)": {"claims": lambda claims: {**claims, "sub": "s" * 256}},
            "too long ago": {"claims": lambda claims: {**claims, "iat": now - 1000, "exp": now + 3600}},
        }
        person, before = self.person(), len(self.cluster.audit())
        for says, changes in hostile.items():
            with self.subTest(says):
                self.setUp()
                vars(self.good).update(changes)
                self.refused(self.log_in(person, check=False), NOT_ALLOWED, says)
        refusals = self.cluster.audit()[before:]
        self.assertEqual({(entry["actor"], entry["outcome"]) for entry in refusals}, {("-", "UNAUTHENTICATED")})
        self.assertEqual(len(refusals), len(hostile))
        self.assertFalse(person.files().exists())
        for skew in ({"iat": now + 290, "exp": now + 600}, {"iat": now - 500, "exp": now - 280}):  # clocks may differ by five minutes
            self.setUp()
            self.good.claims = lambda claims, skew=skew: {**claims, **skew}
            self.log_in(person)

    def test_only_the_answer_to_this_request_is_taken(self):
        self.good.before_redirect = [{"state": "guessed"}, {"iss": "https://evil.example"}, {"code": ""}]
        self.log_in(self.person())
        self.assertEqual(self.good.seen_at_redirect, [400, 400, 400])

    def test_a_code_is_good_once(self):
        codes = []

        def redirect(fields):
            codes.append(fields["code"])
            return {**fields, "code": codes[0]}
        self.good.redirect = redirect
        self.log_in(self.person())
        self.refused(self.log_in(self.person(), check=False), NOT_ALLOWED, "invalid_grant")

    def test_a_person_who_says_no_is_not_logged_in(self):
        self.good.access_denied = True
        self.refused(self.log_in(self.person(), check=False), NOT_ALLOWED, "the login was refused: access_denied: not you")

    def test_who_has_no_place_in_the_cluster_gets_no_certificate(self):
        for subject, says in (("1000", "no user of this cluster has the identity 1000 of"), ("3", "user eve is disabled"), ("4", "user zoe has no role")):
            with self.subTest(subject):
                person, self.good.subject = self.person(), subject
                self.refused(self.log_in(person, check=False), NOT_ALLOWED, says)
                self.assertFalse(person.files().exists())
        refusal = self.cluster.audit()[-1]
        self.assertEqual((refusal["object"], refusal["outcome"]), (f"4 of {self.good.url}", "PERMISSION_DENIED"))

    def ask_socket(self, uid, request):
        """What a process of that uid is answered."""
        out, back = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(uid, uid, uid)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                    connection.settimeout(20)
                    connection.connect(str(self.cluster.socket()))
                    connection.send(request)
                    os.write(back, connection.recv(1 << 17))
            finally:
                os._exit(0)
        os.close(back)
        with open(out, "rb") as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        return json.loads(text) if text else None

    def test_an_account_of_this_machine_logs_in_at_the_socket(self):
        here, socket_path = self.person(), self.cluster.socket()
        self.assertEqual(stat.S_IMODE(socket_path.stat().st_mode), 0o666)
        done = here.muster("login", f"unix:{socket_path}")
        self.assertIn("Logged in to cluster lab as here until ", done.stdout)
        self.assertIn("renewed while it is used", done.stdout)
        seen = set()
        for _ in range(2):
            seen.add(here.certificate("-serial"))
            self.assertIn("user here in cluster ", here.muster("whoami").stdout)
        self.assertEqual(len(seen), 2, "renewed silently")
        entries = [(entry["actor"], entry["object"], entry["peer"]) for entry in self.cluster.audit()]
        self.assertIn(("user/here", "account root", "unix:uid 0"), entries)
        here.muster("login")  # the address is known

    def test_another_account_is_another_person(self):
        here = self.person()
        here.muster("login", f"unix:{self.cluster.socket()}")
        request = subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                                  "/dev/null", "-subj", "/CN=x"], check=True, capture_output=True, timeout=60).stdout
        self.assertIn("no user of this cluster has the account daemon", self.ask_socket(1, request)["error"])
        self.assertIn("this machine has no account of uid 54321", self.ask_socket(54321, request)["error"])
        self.assertIn("users twin-1 and twin-2 have the account sys", self.ask_socket(3, request)["error"])
        self.apply(daemon="daemon")
        self.assertEqual(self.ask_socket(1, request)["user"], "daemon")
        refused = [entry for entry in self.cluster.audit() if entry["outcome"] != "OK"]
        self.assertTrue([entry for entry in refused if entry["peer"] == "unix:uid 1" and entry["object"] == "account daemon"])
        self.apply(disabled=["here"])
        self.refused(here.muster("whoami", check=False), NOT_ALLOWED, "has ended: user here is disabled", "next: muster login")
        self.refused(here.muster("login", check=False), NOT_ALLOWED, "user here is disabled")
        self.apply()

    def test_the_socket_withstands_who_connects_and_says_nothing_or_nonsense(self):
        for nonsense in (b"x", b"-----BEGIN CERTIFICATE REQUEST-----\n", b"\0" * 20000):
            answer = self.ask_socket(0, nonsense)
            self.assertTrue(answer is None or "error" in answer, answer)
        silent = []
        for _ in range(100):
            silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self.addCleanup(silent[-1].close)
            silent[-1].connect(str(self.cluster.socket()))
        wait_until(lambda: "error" in (self.ask_socket(1, b"x") or {}), "another account is answered meanwhile", timeout=5)
        for each in silent:
            each.close()
        self.person().muster("login", f"unix:{self.cluster.socket()}")
        self.refused(self.person().muster("login", "unix:/nowhere", check=False), UNREACHABLE, "no coordinator logs in at /nowhere")

    def test_one_of_several_issuers_must_be_named(self):
        done = self.person().muster("login", self.cluster.endpoint["grpc_join"], "--ca", self.ca, check=False)
        self.refused(done, BAD_USAGE, "expected --issuer URL, one of", self.good.url)

    def test_rotated_keys_are_fetched_but_not_for_every_token(self):
        issuer, person = self.issuers["elliptic"], self.person()
        self.log_in(person, issuer="elliptic")
        fetched = issuer.count("/keys")
        issuer.rotate()
        for _ in range(3):
            self.refused(self.log_in(person, issuer="elliptic", check=False), NOT_ALLOWED, "no ES256 key 'key-")
        self.assertEqual(issuer.count("/keys"), fetched, "they were fetched within the minute")

    def test_an_issuer_without_keys_admits_nobody_and_holds_nobody_up(self):
        self.issuers["slow"].documents["/keys"] = lambda handler: time.sleep(15)
        self.issuers["huge"].documents["/keys"] = lambda handler: handler.send(200, {"keys": ["x" * 10_000_000]})
        self.issuers["down"].documents["/keys"] = lambda handler: handler.connection.close()
        waiting = self.person()
        outcome = []
        slow = threading.Thread(target=lambda: outcome.append(self.log_in(waiting, issuer="slow", check=False)))
        slow.start()
        wait_until(lambda: self.issuers["slow"].count("/keys"), "the coordinator asks for the slow keys")
        self.refused(self.log_in(self.person(), issuer="huge", check=False), UNREACHABLE, "larger than 1 MiB")
        self.refused(self.log_in(self.person(), issuer="down", check=False), UNREACHABLE, "keys cannot be fetched")
        self.log_in(self.person())
        self.cluster.start_worker("node-1")  # joins at the same listener
        self.cluster.wait_until_there(1)
        self.assertTrue(slow.is_alive(), "the others were not kept waiting")
        slow.join()
        self.refused(outcome[0], UNREACHABLE, "keys cannot be fetched")

    def test_a_revoked_user_is_refused_within_seconds_and_logs_in_no_more(self):
        bob, self.good.subject = self.person(), "2"
        self.log_in(bob)
        self.assertIn("user bob", bob.muster("whoami").stdout)
        run("muster", "certs", "revoke", "bob", "--role", "user", "--reason", "left", "--dir", self.cluster.dir)
        wait_until(lambda: bob.muster("whoami", check=False).returncode == NOT_ALLOWED, "the revocation counts", timeout=10)
        self.refused(self.log_in(bob, check=False), NOT_ALLOWED, "was revoked", "left")

    def test_logging_out_ends_the_session_at_the_issuer_too(self):
        ada = self.person()
        self.log_in(ada)
        token = ada.login_file()["refresh_token"]
        self.assertEqual(ada.muster("logout").stdout, "Logged out of cluster lab.\n")
        self.assertFalse(ada.files().exists())
        self.assertIn(("/revoke", token), [(path, fields.get("token")) for path, fields in self.good.asked])
        self.assertIn("there is no cluster in", ada.muster("whoami", check=False).stderr)
        self.assertIn("not logged in", ada.muster("logout", check=False).stderr)

    def test_what_a_login_is_worth_lies_in_the_persons_files_alone(self):
        ada = self.person()
        self.log_in(ada)
        secrets = [ada.login_file()["refresh_token"], *self.good.refreshes]
        for file in self.cluster.root.rglob("*"):
            if file.is_file():
                text = file.read_bytes().decode(errors="replace")
                self.assertFalse(any(secret in text for secret in secrets), file)


class WithoutTheUsersAuthority(unittest.TestCase):
    def test_logins_are_refused_until_init_makes_it_for_an_authority_that_is_there(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="muster-login-"))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        with FakeIssuer(root / "issuer") as issuer:
            cluster = ClusterWithIssuers(None, issuer.ca)
            self.addCleanup(cluster.close)
            cluster.apply_users([issuer.url], {"ada": (issuer.url, "1")})
            before = (cluster.dir / "security" / "ca.pem").read_bytes()
            self.restart(cluster, lambda: shutil.rmtree(cluster.dir / "security" / "users"))
            ada = Person(root, "ada", BROWSER.format(authorities=issuer.ca, home="{home}"))
            words = ("login", cluster.endpoint["grpc_join"], "--ca", cluster.dir / "security" / "ca.pem")
            done = ada.muster(*words, check=False)
            self.assertEqual(done.returncode, CONFLICT, done.stderr)
            self.assertIn(f"muster init --dir {cluster.dir}", done.stderr)
            self.restart(cluster, lambda: self.assertIn("Users can log in", run("muster", "init", "--dir", cluster.dir).stdout))
            self.assertIn("as ada", ada.muster(*words).stdout)
            self.assertIn("user ada", ada.muster("whoami").stdout)
            self.assertEqual((cluster.dir / "security" / "ca.pem").read_bytes(), before)

    def restart(self, cluster, between):
        coordinator = cluster.daemons[0]
        coordinator.terminate()
        coordinator.wait(timeout=60)
        between()
        doors = ["--tls-listen", cluster.endpoint["grpc_tls"], "--join-listen", cluster.endpoint["grpc_join"]]
        cluster.daemons[0] = cluster.start("coordinator", "muster-coordinator", "--dir", cluster.dir, *doors)
        cluster.daemons.pop()
        wait_until(lambda: cluster.muster("whoami", check=False).returncode == 0, "the coordinator answers")


if __name__ == "__main__":
    unittest.main()
