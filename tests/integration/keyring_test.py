"""Refresh tokens in a real keyring: GNOME's, on a session bus of the test's own. tests/support/fake_issuer.py is the issuer."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import wait_until  # noqa: E402
from fake_issuer import FakeIssuer  # noqa: E402
from logins import ClusterWithIssuers, Person  # noqa: E402

NEEDED = ("dbus-daemon", "gnome-keyring-daemon", "secret-tool")
BROWSER = 'exec curl -sS -L --max-time 60 --cacert {authorities} "$1" >{home}/page 2>&1'


class Session:
    """A session bus, with a keyring that is open or, without a password, was never made."""

    def __init__(self, test, folder, password=None):
        folder.mkdir(mode=0o700)
        home = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "XDG_DATA_HOME": str(folder / "data")}
        bus = subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--print-address"], env={**os.environ, **home}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        test.addCleanup(self._end, bus)
        self.variables = {"DBUS_SESSION_BUS_ADDRESS": bus.stdout.readline().strip()}
        if password:
            keyring = subprocess.Popen(["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"], text=True,
                                       env={**os.environ, **home, **self.variables}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            test.addCleanup(self._end, keyring)
            keyring.stdin.write(password)
            keyring.stdin.close()
            wait_until(lambda: self.ask("search", "--all", "service", "none").returncode == 0, "the keyring answers", timeout=30)

    def ask(self, *words):
        return subprocess.run(["secret-tool", *words], env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=60, check=False)

    def token(self):
        """What the keyring has of the cluster."""
        return self.ask("lookup", "service", "muster", "cluster", "lab").stdout

    @staticmethod
    def _end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(timeout=30)
        if process.stdout:
            process.stdout.close()


@unittest.skipUnless(all(map(shutil.which, NEEDED)), f"needs {', '.join(NEEDED)} (deploy/install-deps --tests)")
class KeyringOfTheSession(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-keyring-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.issuer = FakeIssuer(cls.root / "issuer")
        cls.enterClassContext(cls.issuer)
        cls.cluster = ClusterWithIssuers(None, cls.issuer.ca)
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.apply_users([cls.issuer.url], {"ada": (cls.issuer.url, "1")})

    def person(self, password):
        name = self.id().rsplit(".", 1)[1]
        person = Person(self.root, name, BROWSER.format(authorities=self.issuer.ca, home="{home}"))
        return person, Session(self, self.root / f"{name}-session", password)

    def log_in(self, person, *words, **variables):
        return person.muster("login", self.cluster.endpoint["grpc_join"], "--ca", self.cluster.dir / "security" / "ca.pem", *words, **variables)

    def test_a_refresh_token_is_kept_renewed_and_removed_in_the_keyring(self):
        ada, session = self.person("open sesame")
        self.assertIn("The refresh token is in the keyring.\n", self.log_in(ada, **session.variables).stdout)
        first = session.token()
        self.assertIn(first, self.issuer.refreshes)
        self.assertEqual((ada.login_file()["refresh_token"], ada.login_file()["refresh_token_in"]), ("", "keyring"))
        self.assertEqual(ada.muster("whoami", **session.variables).stderr, "")
        second = session.token()
        self.assertNotIn(second, ("", first), "it rotates")
        for file in ada.home.rglob("*"):
            self.assertFalse(file.is_file() and second in file.read_text(errors="replace"), file)
        # Over SSH there is no keyring: the certificate is used until its end.
        self.assertIn("user ada", ada.muster("whoami").stdout)
        self.assertEqual(ada.muster("logout", **session.variables).stderr, "")
        self.assertEqual(session.token(), "")
        self.assertIn(("/revoke", second), [(path, fields.get("token")) for path, fields in self.issuer.asked])

    def test_insecure_storage_keeps_it_in_the_file_and_takes_it_out_of_the_keyring(self):
        ada, session = self.person("open sesame")
        self.log_in(ada, **session.variables)
        done = self.log_in(ada, "--insecure-storage", **session.variables)
        self.assertIn(f"The refresh token is in {ada.files()}/login.json.\n", done.stdout)
        self.assertEqual(session.token(), "")
        self.assertIn(ada.login_file()["refresh_token"], self.issuer.refreshes)
        ada.muster("whoami", **session.variables)
        self.assertEqual((session.token(), ada.login_file()["refresh_token_in"]), ("", "file"))

    def test_a_keyring_that_is_locked_stops_no_command_and_leaves_the_next_token_in_the_file(self):
        ada, session = self.person("open sesame")
        self.log_in(ada, **session.variables)
        session.ask("lock")
        self.assertEqual(session.token(), "", "no person is there to unlock it")
        done = ada.muster("whoami", **session.variables)
        self.assertEqual(("user ada" in done.stdout, done.stderr), (True, ""), "the certificate is good still")
        done = self.log_in(ada, **session.variables)
        self.assertRegex(done.stdout, r"The refresh token is in .*/login.json: the keyring .*locked.*\.\n")
        self.assertEqual(done.stderr.count("\n"), 2, "no noise: " + done.stderr)
        self.assertIn("user ada", ada.muster("whoami", **session.variables).stdout)

    def test_a_session_without_a_keyring_of_its_own_leaves_it_in_the_file(self):
        ada, session = self.person(None)
        self.assertRegex(self.log_in(ada, **session.variables).stdout, "The refresh token is in .*/login.json: the keyring cannot be used: ")

    def test_without_a_keyring_nothing_is_said_of_it(self):
        name = self.id().rsplit(".", 1)[1]
        ada = Person(self.root, name, BROWSER.format(authorities=self.issuer.ca, home="{home}"))
        self.assertIn(f"The refresh token is in {ada.files()}/login.json.\n", self.log_in(ada).stdout)
        self.assertEqual(ada.login_file()["refresh_token_in"], "file")


if __name__ == "__main__":
    unittest.main()
