"""Floods of the coordinator's TLS ports: its workers' heartbeats come through, memory stays bounded, all is well after."""

import pathlib
import re
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))

from cluster import wait_until  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

SECONDS = 1.2  # of each flood
HEARTBEAT_S = 0.5
LOST_AT_MOST = 0.01
MEMORY_AT_MOST = 512 << 20
NORMAL_WITHIN_S = 2
# What floods gRPC's ports, and the port for pages, which speaks HTTP/1.1.
GRPC_FLOODS = ("idle", "handshakes", "slow_headers", "giant_metadata", "much_metadata", "rapid_reset", "stream_flood",
               "unread")
HTTP_FLOODS = ("idle", "slow_headers", "long_lines")
AGE = re.compile(r'^muster_worker_heartbeat_age_seconds\{[^}]*node="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)


class Heartbeats(threading.Thread):
    """Sees when each node's last message came, and counts the heartbeats that did not."""

    def __init__(self, http):
        super().__init__(daemon=True)
        self.url = f"http://{http}/metrics"
        self.came = self.lost = 0
        self.worst = 0.0  # between two, seconds
        self.stopping = threading.Event()

    def run(self):
        last = {}
        while not self.stopping.wait(0.05):
            with urllib.request.urlopen(self.url, timeout=30) as answer:
                text = answer.read().decode()
            now = time.monotonic()
            for node, age in AGE.findall(text):
                at = now - float(age)
                gap = at - last.setdefault(node, at)
                if gap > HEARTBEAT_S / 2:
                    self.came += 1
                    self.lost += max(0, round(gap / HEARTBEAT_S) - 1)
                    self.worst = max(self.worst, gap)
                    last[node] = at

    def stop(self):
        self.stopping.set()
        self.join(timeout=60)


class Floods(unittest.TestCase):
    def flood(self, kind, door, credentials=None):
        """A flood comes from other machines; here it must not take the coordinator's processors."""
        words = ["nice", "-n", "10", sys.executable, SUPPORT / "h2_floods.py", kind, self.cluster.endpoint[door],
                 SECONDS, self.cluster.dir / "security" / "ca.pem", *([credentials] if credentials else [])]
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)

    def is_calm(self):
        heartbeats = Heartbeats(self.cluster.endpoint["http"])
        heartbeats.start()
        heartbeats.stopping.wait(1)
        heartbeats.stop()
        return heartbeats.came > 0 and heartbeats.lost == 0

    def peak(self):
        status = pathlib.Path(f"/proc/{self.cluster.daemons[0].pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10

    def time_of_a_call(self):
        began = time.monotonic()
        self.cluster.muster("nodes")
        return time.monotonic() - began

    def check(self, name, *floods):
        heartbeats = Heartbeats(self.cluster.endpoint["http"])
        heartbeats.start()
        running = [self.flood(*flood) for flood in floods]
        said = [process.communicate(timeout=60)[0].strip() for process in running]
        ended = time.monotonic()
        while self.time_of_a_call() > 2 * self.usual + 0.2:
            self.assertLess(time.monotonic() - ended, 60, f"{name}: a call still takes long")
        normal = time.monotonic() - ended
        heartbeats.stop()
        share = heartbeats.lost / max(1, heartbeats.came + heartbeats.lost)
        print(f"{name}: {'; '.join(said)}; {heartbeats.lost} of {heartbeats.came + heartbeats.lost} heartbeats lost, "
              f"{heartbeats.worst:.2f} s between two at most; peak {self.peak() >> 20} MiB; normal in {normal:.2f} s",
              flush=True)
        self.assertEqual([process.returncode for process in running], [0] * len(running), said)
        self.assertGreater(heartbeats.came, 0)
        self.assertLess(share, LOST_AT_MOST, name)
        self.assertLessEqual(self.peak(), MEMORY_AT_MOST, name)
        self.assertLessEqual(normal, NORMAL_WITHIN_S, name)

    def test_workers_are_heard_and_memory_is_bounded_while_ports_are_flooded(self):
        self.cluster = TlsCluster(self, nodes=4)
        self.usual = min(self.time_of_a_call() for _ in range(5))
        scraper = self.cluster.dir / "security" / "scraper"  # a certificate that may call nothing there
        wait_until(self.is_calm, "heartbeats come as they should")
        for kind in GRPC_FLOODS:
            with self.subTest(kind):
                self.check(kind, (kind, "grpc_join"), (kind, "grpc_tls", scraper))
        with self.subTest("pages"):
            self.check("pages", *((kind, "http_tls", scraper) for kind in HTTP_FLOODS))


if __name__ == "__main__":
    unittest.main()
