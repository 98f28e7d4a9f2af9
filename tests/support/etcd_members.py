"""An etcd of several members, each a host of a Network, with TLS and users as the one of etcd.py.

  etcd = EtcdMembers(test, directory, network, ["etcd-1", "etcd-2", "etcd-3"])
  etcd.flags("muster")                       # the addresses of all members
  etcd.leader().kill()
"""

import json
import os
import shutil
import signal
import subprocess

from cluster import wait_until
from etcd import Etcd

CLIENTS, PEERS = 2379, 2380  # ports, of an address that no other program has


class Member:
    def __init__(self, etcd, name, data):
        self.etcd, self.name, self.process = etcd, name, None
        self.address = etcd.network.address(name)
        self.data, self.log = data or etcd.path(f"{name}.data"), etcd.path(f"{name}.log")

    def url(self):
        return f"https://{self.address}:{CLIENTS}"

    def peer_url(self):
        return f"http://{self.address}:{PEERS}"

    def start(self, state="new"):
        """Also again, with the data that it has; `state` counts where it has none."""
        etcd = self.etcd
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*etcd.network.enter(self.name), "etcd", "--name", self.name, "--data-dir", self.data / "etcd",
                 "--logger", "zap", "--log-outputs", "stderr",
                 "--listen-client-urls", self.url(), "--advertise-client-urls", self.url(),
                 "--listen-peer-urls", self.peer_url(), "--initial-advertise-peer-urls", self.peer_url(),
                 "--initial-cluster", ",".join(f"{member.name}={member.peer_url()}" for member in etcd.members),
                 "--initial-cluster-state", state, "--client-cert-auth", "--trusted-ca-file", etcd.path("ca.pem"),
                 "--cert-file", etcd.path("etcd.pem"), "--key-file", etcd.path("etcd.key")],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, number=signal.SIGKILL):
        if self.runs():
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait()

    def forget(self):
        for entry in self.data.iterdir():  # which may be a mount point
            shutil.rmtree(entry)


class EtcdMembers(Etcd):
    def __init__(self, test, directory, network, names, data=()):
        """`data`: folders for the data of some, by name."""
        self.network, self.directory = network, directory
        self.members = [Member(self, name, dict(data).get(name)) for name in names]
        self.names = ",".join(f"IP:{member.address}" for member in self.members)
        super().__init__(test, directory)

    def start(self):
        for member in self.members:
            member.data.mkdir(exist_ok=True)
            member.start()
        self.wait_until_whole()

    def kill(self):
        for member in self.members:
            member.kill()

    def flags(self, name):
        return ["--etcd", ",".join(member.url() for member in self.members), *super().flags(name)[2:]]

    def ctl(self, *words, members=None):
        """At these members; otherwise at one that answers."""
        urls = ",".join(member.url() for member in members or self.members)
        done = subprocess.run(
            [*self.network.enter(self.network.site), "etcdctl", "--endpoints", urls, "--cacert", self.path("ca.pem"),
             "--cert", self.path("root.pem"), "--key", self.path("root.key"), "--dial-timeout", "1s",
             "--command-timeout", "5s", *words],
            env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self):
        """What each member that answers says of itself, by name."""
        try:
            answers = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        except (AssertionError, ValueError):
            answers = []
            for member in filter(Member.runs, self.members):
                try:
                    answers += json.loads(self.ctl("endpoint", "status", "-w", "json", members=[member]))
                except (AssertionError, ValueError):
                    continue
        names = {member.url(): member.name for member in self.members}
        return {names[answer["Endpoint"]]: answer["Status"] for answer in answers}

    def leader(self):
        """The Member that leads; None where none does."""
        for name, status in self.status().items():
            if status["header"]["member_id"] == status.get("leader"):
                return next(member for member in self.members if member.name == name)
        return None

    def wait_until_whole(self):
        """All members answer and have one leader."""
        def whole():
            status = self.status()
            leaders = {each.get("leader") for each in status.values()}
            return len(status) == len(self.members) and len(leaders) == 1 and leaders != {None}
        wait_until(whole, "all members of etcd have a leader")

    def replace_member(self, member):
        """In the place of the member a new one, without its data; its ids, before and after."""
        others = [each for each in self.members if each is not member]
        old = self.status()[member.name]["header"]["member_id"]

        def does(*words):
            """Not within some seconds of an election; a change of which no answer came may have been made."""
            try:
                self.ctl("member", *words, members=others)
                return True
            except AssertionError as error:
                if any(text in str(error) for text in ("member not found", "already exists")):
                    return True
                if not any(text in str(error) for text in ("unhealthy cluster", "deadline exceeded", "no leader", "timed out", "leader changed")):
                    raise
                return False
        wait_until(lambda: does("remove", f"{old:x}"), f"{member.name} is removed")
        member.kill()
        member.forget()
        wait_until(lambda: does("add", member.name, f"--peer-urls={member.peer_url()}"), f"{member.name} is added")
        member.start(state="existing")
        self.wait_until_whole()
        return old, self.status()[member.name]["header"]["member_id"]
