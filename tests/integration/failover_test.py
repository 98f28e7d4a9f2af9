"""The leader moves over three coordinators of three directories, as of three machines: what each of them has of its own, and what it
has from the store. People and nodes come in at any of them."""

import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, kill, processes_of, run, wait_until  # noqa: E402
from etcd import Etcd  # noqa: E402
from etcd_test import WithEtcd  # noqa: E402
from fake_issuer import FakeIssuer  # noqa: E402
from gang import free_port  # noqa: E402
from logins import Person  # noqa: E402

BROWSER = 'exec curl -sS -L --max-time 60 --cacert {authorities} "$1" >{home}/page 2>&1'
NAMES = ("first", "second", "third")
QUEUES = "queues: {default: , research: {queues: {nlp: }}}\n"


@unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                     "Debian's packages etcd-server and etcd-client are not installed")
class ThreeCoordinators(WithEtcd):
    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self, self.root / "etcd")
        issuer = FakeIssuer(self.root / "issuer")
        self.issuer = issuer.__enter__()
        self.addCleanup(issuer.__exit__, None, None, None)
        self.coordinators, self.places = {}, {}
        for name in NAMES:
            place = {flag: f"127.0.0.1:{free_port()}" for flag in ("tls-listen", "join-listen", "tls-http")}
            flags = [word for flag, address in place.items() for word in (f"--{flag}", address)]
            self.places[name] = place
            self.coordinators[name] = self.coordinator(name, *self.etcd.flags("muster"), *flags, "--issuer-ca", issuer.ca,
                                                       "--user-certificate-lifetime", "5m")  # each command renews it
        first = self.coordinators["first"]
        run("muster", "init", "--dir", first.directory, "--cluster", "lab")
        self.security = first.directory / "security"
        for name in NAMES[1:]:  # the step of docs/operations.md
            shutil.copytree(self.security, self.coordinators[name].directory / "security")
        self.all_addresses = ",".join(self.places[name]["tls-listen"] for name in NAMES)
        for name in NAMES:
            coordinator = self.coordinators[name].start()
            coordinator.wait_until_it_serves() if name == "first" else coordinator.wait_until_it_stands_by()
        for text, group in ((QUEUES, "queues"), (self.users(), "users")):
            file = self.root / f"{group}.yaml"
            file.write_text(text, encoding="utf-8")
            self.muster(group, "apply", file)

    def users(self):
        return json.dumps({"issuers": [{"url": self.issuer.url, "client_id": "muster"}],
                           "users": {"ada": {"identity": {"issuer": self.issuer.url, "subject": "1"}}},
                           "roles": [{"role": "submitter", "queues": ["research"], "users": ["ada"]}]})

    def muster(self, *words, **options):
        return run("muster", *words, "--coordinator", self.all_addresses, "--tls", self.security / "admin", "--dir",
                   self.root / "none", **options)

    def json(self, *words):
        return json.loads(self.muster(*words, "-o", "json").stdout)

    def move(self, name):
        """Until that one leads: the others are killed and stand by again."""
        others = [each for each in NAMES if each != name]
        for other in others:
            self.coordinators[other].kill()
        self.coordinators[name].wait_until_it_serves()
        for other in others:
            self.coordinators[other].start()
            self.coordinators[other].wait_until_it_stands_by()

    def join(self, node, at):
        """By a token of that one's directory, where the node comes in, whoever leads."""
        token = run("muster", "certs", "join-token", "--node", node, "--dir", self.coordinators[at].directory).stdout.strip()
        self.assertIn(f"join={self.places[at]['join-listen']}", token)
        log = self.root / f"{node}.log"
        with open(log, "ab") as output:
            worker = subprocess.Popen(
                [str(BIN / "muster-worker"), "--dir", self.root / node, "--node", node, "--slots", "2", "--address",
                 f"127.0.0.{10 + int(node[-1])}", "--join", token, "--coordinator", self.all_addresses],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, worker, node)
        self.wait_for_nodes(node)

    def end(self, worker, node):
        worker.terminate()
        worker.wait(timeout=60)
        for pid, _ in processes_of(self.root / node):
            kill(pid)

    def wait_for_nodes(self, *names):
        def ready():
            states = {node["name"]: node["state"] for node in self.json("nodes")}
            return all(states.get(name) == "ready" for name in names)
        wait_until(ready, f"{names} are ready")

    def page(self, name, path):
        context = ssl.create_default_context(cafile=self.security / "ca.pem")
        context.check_hostname = False  # it is known by the name of its role
        context.load_cert_chain(self.security / "scraper" / "cert.pem", self.security / "scraper" / "key.pem")
        connection = http.client.HTTPSConnection(self.places[name]["tls-http"], timeout=30, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def targets(self, leader, component):
        status, _, body = self.page(leader, "/sd")
        self.assertEqual(status, 200, body)
        return {target for group in json.loads(body) if group["labels"]["component"] == component for target in group["targets"]}

    def person(self):
        return Person(self.root, "ada", BROWSER.format(authorities=self.issuer.ca, home="{home}"))

    def read_secret(self, value):
        """By a rank of a job of the person's, in a queue of the file."""
        work = pathlib.Path(os.path.join(self.root, f"work-{self.jobs}"))
        self.jobs += 1
        work.mkdir()
        file = work / "job.json"
        file.write_text(json.dumps({"name": f"reads-{self.jobs}", "workdir": str(work), "queue": "nlp",
                                    "command": ["sh", "-c", 'printf %s "$HF" > value'], "secrets": [{"name": "hf", "env": "HF"}],
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        done = self.ada.muster("submit", file, "--wait", check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((work / "value").read_text(encoding="utf-8"), value)

    jobs = 0

    def test_each_coordinator_has_what_a_leader_needs(self):
        self.join("node-1", at="second")  # which stands by
        self.ada = self.person()
        # At a standby, which says where the leader takes it.
        self.ada.muster("login", self.places["third"]["join-listen"], "--ca", self.security / "ca.pem")
        secret = self.root / "secret"
        secret.write_text("of-ada", encoding="utf-8")
        self.ada.muster("secret", "set", "hf", "--queue", "research", "--from-file", secret)
        for name in NAMES[1:]:  # the step of docs/operations.md
            shutil.copy(self.coordinators["first"].directory / "coordinator" / "secret-keys",
                        self.coordinators[name].directory / "coordinator" / "secret-keys")
        self.read_secret("of-ada")
        nodes, trail = ["node-1"], 0
        for number, leader in enumerate(NAMES, start=1):
            if number > 1:
                self.move(leader)
                self.wait_for_nodes(*nodes)
                self.read_secret("of-ada")
                nodes.append(f"node-{number}")
                self.join(nodes[-1], at=leader)
            with self.subTest(leader):
                self.assertIn("nlp", self.muster("queues", "show").stdout)
                self.assertIn("user ada", self.ada.muster("whoami").stdout)
                self.muster("audit", "verify")
                entries = self.json("audit", "tail", "-n", "1000")
                self.assertEqual([entry["seq"] for entry in entries], list(range(1, len(entries) + 1)))
                self.assertGreater(len(entries), trail)
                trail = len(entries)
                wait_until(lambda leader=leader: self.targets(leader, "coordinator") ==
                           {place["tls-http"] for place in self.places.values()}, "/sd has all coordinators")
                self.assertEqual(len(self.targets(leader, "worker")), len(nodes))
                for other in NAMES:
                    if other != leader:
                        status, headers, _ = self.page(other, "/sd")
                        self.assertEqual((status, headers["Location"]), (307, f"https://{self.places[leader]['tls-http']}/sd"))

    def test_a_login_is_renewed_after_the_coordinator_that_gave_it_is_gone(self):
        ada = self.person()
        given = self.places["first"]["join-listen"]
        wait_until(lambda: len(self.targets("first", "coordinator")) == 3, "the leader knows the others")
        ada.muster("login", given, "--ca", self.security / "ca.pem")
        before = ada.certificate("-serial")
        self.coordinators["first"].kill()
        self.assertIn("user ada", ada.muster("whoami").stdout)
        self.assertNotEqual(ada.certificate("-serial"), before)
        self.assertEqual(ada.login_file()["address"], given, "as the person has given it")
        # A variable names other coordinators, and the login is what they are shown.
        for name in ("second", "third"):
            self.assertIn("user ada", ada.muster("whoami", MUSTER_COORDINATOR=self.places[name]["tls-listen"]).stdout)
        done = ada.muster("whoami", MUSTER_COORDINATOR=self.places["first"]["tls-listen"], check=False)
        self.assertIn(f"the coordinator at {self.places['first']['tls-listen']} does not answer", done.stderr)


if __name__ == "__main__":
    unittest.main()
