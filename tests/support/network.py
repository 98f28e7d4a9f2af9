"""Hosts on one network of their own, which can be cut from each other.

  network = Network(["a", "b"], site="a")
  subprocess.run([*network.enter("a"), "ping", network.address("b")])
  network.cut("a", "b")                      # packets are lost in silence
  network.unplug("a"); network.heal(); network.close()

Each host is a network namespace, with an interface on a bridge in another one. Without root, and without `ip`, all hosts
are addresses of loopback, and nothing can be cut.
"""

import itertools
import os
import shutil
import subprocess

from cluster import can_have_namespaces, ip

SUBNET, ELSEWHERE = "10.79.0.", "02:00:00:00:00:fe"  # the second is the hardware address of none


class Network:
    def __init__(self, hosts, site):
        """`site` is the host where tests call programs that ask the others."""
        self.hosts, self.site = list(hosts), site
        self.can_cut = can_have_namespaces()
        self._cuts, self._unplugged = set(), set()
        if not self.can_cut:
            return
        ip("netns", "add", self._space("hub"))
        ip("-n", self._space("hub"), "link", "add", "bridge0", "type", "bridge")
        ip("-n", self._space("hub"), "link", "set", "bridge0", "up")
        for number, host in enumerate(self.hosts):
            space = self._space(host)
            ip("netns", "add", space)
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns",
               self._space("hub"))
            ip("-n", self._space("hub"), "link", "set", f"port{number}", "master", "bridge0", "up")
            ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", space, "link", "set", device, "up")

    def _space(self, host):
        return f"muster-hosts-{os.getpid()}-{host}"

    def address(self, host):
        number = self.hosts.index(host) + 1
        return f"{SUBNET}{number}" if self.can_cut else f"127.0.79.{number}"

    def enter(self, host):
        """What stands before a command that the host runs."""
        return ["nsenter", f"--net=/run/netns/{self._space(host)}"] if self.can_cut else []

    def cut(self, one, *others):
        for other in others:
            for here, there in itertools.permutations((one, other)):
                ip("-n", self._space(here), "neigh", "replace", self.address(there), "lladdr", ELSEWHERE, "dev", "eth0",
                   "nud", "permanent")
                self._cuts.add((here, there))

    def unplug(self, host):
        """Both its programs and those of all other hosts may see that at once."""
        ip("-n", self._space(host), "link", "set", "eth0", "down")
        self._unplugged.add(host)

    def connects(self, here, there, port):
        return subprocess.run(
            [*self.enter(here), "timeout", "0.3", "bash", "-c", f"exec 3<>/dev/tcp/{self.address(there)}/{port}"],
            capture_output=True, check=False, timeout=10).returncode == 0

    def heal(self):
        for host in self._unplugged:
            ip("-n", self._space(host), "link", "set", "eth0", "up")
        for here, there in self._cuts - set(itertools.product(self._unplugged, self.hosts)):
            ip("-n", self._space(here), "neigh", "del", self.address(there), "dev", "eth0")
        self._unplugged, self._cuts = set(), set()

    def close(self):
        if self.can_cut:
            for host in (*self.hosts, "hub"):
                subprocess.run([shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin"), "netns", "del",
                                self._space(host)], check=False, capture_output=True, timeout=60)
