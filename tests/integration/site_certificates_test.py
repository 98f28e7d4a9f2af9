"""A site's own authority: its certificate of the page, which browsers know, and credentials of the cluster that it signs."""

import http.client
import json
import pathlib
import shutil
import socket
import ssl
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import run, wait_until  # noqa: E402
from site_pki import RSA, SitePki  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

PAGE = "muster.example.org"


def temporary(test):
    root = pathlib.Path(tempfile.mkdtemp(prefix="muster-site-"))
    test.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
    return root


class ClusterWithPage(TlsCluster):
    def __init__(self, chain, key):
        self.page = (chain, key)
        super().__init__(None, nodes=0)

    def start(self, name, program, *arguments, env=None):
        if program == "muster-coordinator":
            arguments += ("--page-certificate", self.page[0], "--page-key", self.page[1])
        return super().start(name, program, *arguments, env=env)


class PageCertificate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = temporary(cls)
        cls.pki = SitePki(cls.root / "pki")
        # As a volume of Kubernetes with a Secret of cert-manager: links, of which one is changed.
        cls.volume = cls.root / "volume"
        cls.volume.mkdir()
        cls.put("first")
        cls.cluster = ClusterWithPage(cls.volume / "tls.crt", cls.volume / "tls.key")
        cls.addClassCleanup(cls.cluster.close)
        cls.ours = cls.cluster.dir / "security"

    @classmethod
    def put(cls, version, **options):
        chain, key = cls.pki.issue(version, f"DNS:{PAGE}", **options)
        folder = cls.volume / version
        folder.mkdir()
        shutil.copy(chain, folder / "tls.crt")
        shutil.copy(key, folder / "tls.key")
        (folder / "tls.key").chmod(0o640)
        (cls.volume / "next").symlink_to(version)
        (cls.volume / "next").rename(cls.volume / "data")
        for name in ("tls.crt", "tls.key"):
            if not (cls.volume / name).is_symlink():
                (cls.volume / name).symlink_to(f"data/{name}")

    def ask(self, path, authority, name, credentials=None):
        """(status, common name of the server's certificate); raises ssl.SSLError where the client does not believe the server."""
        context = ssl.create_default_context(cafile=authority)
        context.check_hostname = name is not None
        if credentials:
            context.load_cert_chain(credentials / "cert.pem", credentials / "key.pem")
        host, port = self.cluster.endpoint["http_tls"].rsplit(":", 1)
        with context.wrap_socket(socket.create_connection((host, int(port)), timeout=20), server_hostname=name) as stream:
            shown = stream.getpeercert()
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            answer = http.client.HTTPResponse(stream)
            answer.begin()
            return answer.status, dict(field[0] for field in shown["subject"])["commonName"]

    def test_a_browser_that_trusts_the_sites_authority_alone_opens_the_page_by_its_name(self):
        self.assertEqual(self.ask("/", self.pki.root, PAGE)[0], 200)
        self.assertEqual(self.ask("/metrics", self.pki.root, PAGE)[0], 403, "a stranger")
        with self.assertRaises(ssl.SSLError):
            self.ask("/", self.pki.root, "other.example.org")

    def test_who_trusts_the_cluster_alone_goes_on_as_before(self):
        for name in ("coordinator.muster", None):
            self.assertEqual(self.ask("/metrics", self.ours / "ca.pem", name, self.ours / "scraper")[0], 200, name)
        with self.assertRaises(ssl.SSLError):
            self.ask("/", self.ours / "ca.pem", PAGE)

    def test_certificates_of_the_cluster_are_accepted_under_the_sites_name_and_no_others(self):
        self.assertEqual(self.ask("/metrics", self.pki.root, PAGE, self.ours / "scraper")[0], 200)
        stranger = self.pki.credentials(self.root / "stranger", "URI:muster://lab/admin/eve")
        with self.assertRaises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            self.ask("/metrics", self.pki.root, PAGE, stranger)

    def test_a_renewed_certificate_is_shown_without_a_restart_and_a_bad_one_is_not(self):
        self.put("second")
        wait_until(lambda: self.ask("/", self.pki.root, PAGE)[1] == "second", "the new certificate is shown", timeout=20)
        (self.volume / "second" / "tls.crt").write_text("half", encoding="utf-8")
        wait_until(lambda: "HTTP goes on with the certificate it had" in self.cluster.log("coordinator"), "the log says so", timeout=20)
        self.assertEqual(self.ask("/", self.pki.root, PAGE), (200, "second"))

    def test_what_no_browser_would_accept_ends_the_start_with_the_reason(self):
        chain, key = self.pki.issue("good", f"DNS:{PAGE}")
        other = self.pki.issue("other", f"DNS:{PAGE}")[1]
        spiffe = self.pki.issue("spiffe", "URI:spiffe://example.org/muster")
        late = self.pki.issue("late", f"DNS:{PAGE}", days=0)
        known = self.root / "known.key"
        shutil.copy(key, known)
        known.chmod(0o644)
        for files, says in (((chain, None), "--page-certificate and --page-key go together"), ((None, key), "go together"),
                            ((chain, other), f"the private key in {other} is not that of {chain}"), ((chain, known), "may be read by others"),
                            (spiffe, "names no host"), (late, "expired at"), ((key, key), "no certificate in PEM"), ((chain, "/none"), "/none")):
            with self.subTest(says):
                flags = [word for flag, file in zip(("--page-certificate", "--page-key"), files) if file for word in (flag, file)]
                done = run("muster-coordinator", "--dir", self.cluster.dir, "--tls-http", "127.0.0.1:0", *flags, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(says, done.stderr)
        done = run("muster-coordinator", "--dir", self.cluster.dir, "--page-certificate", chain, "--page-key", key, check=False)
        self.assertIn("--page-certificate needs --tls-http", done.stderr)


class ClusterOfSite(TlsCluster):
    """Every certificate is the site's: `init` makes none of them."""

    def __init__(self, root, pki):
        self.own, self.pki = root, pki
        super().__init__(None, nodes=1)

    def up(self):
        self.dir.mkdir(exist_ok=True)
        coordinator = self.pki.credentials(self.own / "coordinator", "URI:muster://lab/coordinator/c,DNS:coordinator.muster")
        self.admin = self.pki.credentials(self.own / "admin", "URI:muster://lab/admin/alice")
        self.start("coordinator", "muster-coordinator", "--dir", self.dir, "--tls", coordinator, "--tls-listen", "127.0.0.1:0")
        self.endpoint = self.wait_for_endpoint()
        node = self.pki.credentials(self.own / "node", "URI:muster://lab/node/node-1,DNS:node.muster")
        self.start("node-1", "muster-worker", "--dir", self.root / "node-1", "--node", "node-1", "--slots", 1, "--address", "127.0.0.11",
                   "--tls", node, "--coordinator", self.endpoint["grpc_tls"])
        self.wait_until_there(1)

    def wait_for_endpoint(self):
        endpoint = self.dir / "coordinator" / "endpoint.json"
        wait_until(endpoint.exists, "the coordinator listens")
        return json.loads(endpoint.read_text(encoding="utf-8"))

    def muster(self, command, *arguments, credentials=None, **options):
        return super().muster(command, *arguments, credentials=credentials or self.admin, **options)


class CredentialsOfASite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = temporary(cls)
        cls.pki = SitePki(cls.root / "pki", "lab")

    def test_an_authority_of_the_site_signs_for_coordinator_nodes_and_people(self):
        cluster = ClusterOfSite(self.root, self.pki)
        self.addCleanup(cluster.close)
        self.assertIn("admin alice in cluster lab", cluster.muster("whoami").stdout)
        self.assertIn("node-1", cluster.muster("nodes").stdout)
        stranger = SitePki(self.root / "other", "lab").credentials(self.root / "eve", "URI:muster://lab/admin/alice")
        self.assertNotEqual(cluster.muster("nodes", credentials=stranger, check=False).returncode, 0)
        before = self.serial(cluster)
        self.pki.credentials(self.root / "coordinator", "URI:muster://lab/coordinator/c,DNS:coordinator.muster")
        wait_until(lambda: self.serial(cluster) != before, "gRPC shows what the site has renewed", timeout=30)
        self.assertIn("node-1", cluster.muster("nodes").stdout)

    def serial(self, cluster):
        """Of the coordinator's certificate, as a client of gRPC sees it."""
        context = ssl.create_default_context(cafile=self.pki.root)
        context.load_cert_chain(cluster.admin / "cert.pem", cluster.admin / "key.pem")
        host, port = cluster.endpoint["grpc_tls"].rsplit(":", 1)
        with context.wrap_socket(socket.create_connection((host, int(port)), timeout=20), server_hostname="coordinator.muster") as stream:
            return stream.getpeercert()["serialNumber"]

    def start(self, credentials):
        return run("muster-coordinator", "--dir", self.root / "never", "--tls", credentials, "--tls-listen", "127.0.0.1:0", check=False)

    def test_what_names_no_identity_of_muster_is_refused_with_the_reason(self):
        spiffe = self.pki.credentials(self.root / "spiffe", "URI:spiffe://example.org/c,DNS:coordinator.muster")
        self.assertIn("the identity is not muster://CLUSTER/ROLE/NAME", self.start(spiffe).stderr)
        plain = self.pki.credentials(self.root / "plain", "DNS:coordinator.muster")
        self.assertIn("names 0 URIs instead of one identity", self.start(plain).stderr)
        spaces = SitePki(self.root / "spaces").credentials(self.root / "spaced", "URI:muster://lab/coordinator/c,DNS:coordinator.muster")
        self.assertIn("cluster name 'Example Root CA' is refused", self.start(spaces).stderr)

    def test_a_key_of_rsa_which_would_open_tls_1_2_is_refused(self):
        rsa = self.pki.credentials(self.root / "rsa", "URI:muster://lab/coordinator/c,DNS:coordinator.muster", key=RSA)
        done = self.start(rsa)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the private key is one of RSA", done.stderr)


if __name__ == "__main__":
    unittest.main()
