"""Debian's Prometheus beside a running cluster: what rules and panels ask for is there, and alerts fire.

Times of the rules are shortened in a copy, and everything is scraped each second.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
sys.path.insert(0, str(ROOT / "deploy" / "grafana"))
sys.path.insert(1, str(ROOT / "deploy" / "reference"))

from cluster import Cluster, kill, wait_until  # noqa: E402
import generate  # noqa: E402
import metrics  # noqa: E402

import signal  # noqa: E402

DEPLOY = ROOT / "deploy" / "prometheus"
# Replacements for the windows of rules and panels, and for how long an alert must hold.
SHORTER = ((r"\[2m\]", "[10s]"), (r"\[5m\]", "[15s]"), (r"for: \d+[ms]", "for: 3s"))
# Series that exist only with GPUs, and only between machines.
NEEDS_GPU = re.compile(r"muster_(cuda|gpu)_|muster:gpu_memory|DCGM_")
NEEDS_TLS = {"muster_certificate_expiry_timestamp_seconds"}
# Series that exist only after a deadline was set.
NEEDS_DEADLINE = {"muster_node_leave_timestamp_seconds", "muster_job_stop_by_timestamp_seconds"}
# Series that exist only while a rank delays its run.
NEEDS_STRAGGLER = {"muster_job_straggler_ratio"}
# Alerts that a busy machine may raise with such short windows and steps.
PACE = {"MusterDataBound", "MusterStraggler", "MusterHeartbeatLate", "MusterTargetDown",
        "MusterNoDurableCheckpoint"}
# Panels about events that a healthy run does not have: their expressions give nothing, or no number.
QUIET_PANELS = {"Restarts by cause", "Restarts by tier", "Mean time by stage", "95th percentile, 6 h",
                "Wait in the queue", "Rank hours lost, 24 h", "annotation Restarts"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Prometheus:
    """One server, that ends with the test."""

    def __init__(self, folder, coordinator):
        self.folder = folder
        (folder / "rules").mkdir(parents=True)
        for path in (DEPLOY / "rules").glob("*.yml"):
            text = path.read_text(encoding="utf-8")
            for pattern, shorter in SHORTER:
                text = re.sub(pattern, shorter, text)
            (folder / "rules" / path.name).write_text(text, encoding="utf-8")
        config = (DEPLOY / "local.yml").read_text(encoding="utf-8")
        config = config.replace("127.0.0.1:9750", coordinator)
        config = re.sub(r"(_interval): 15s", r"\1: 1s", config)
        (folder / "local.yml").write_text(config, encoding="utf-8")
        self.url = f"http://127.0.0.1:{free_port()}"
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/local.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.url.removeprefix('http://')}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def close(self):
        kill(self.process.pid)
        self.process.wait(timeout=10)

    def is_up(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "prometheus.log").read_text(encoding="utf-8"))
        try:
            return fetch(self.url + "/-/ready")
        except OSError:
            return None

    def api(self, path, **arguments):
        query = "?" + urllib.parse.urlencode(arguments) if arguments else ""
        return json.loads(fetch(f"{self.url}/api/v1/{path}{query}"))["data"]

    def query(self, expression):
        return self.api("query", query=expression)["result"]

    def targets(self):
        return {t["labels"]["component"] + t["labels"].get("node", ""): t["health"]
                for t in self.api("targets")["activeTargets"]}

    def firing(self):
        return {(a["labels"]["alertname"], a["labels"].get("job_id", ""), a["labels"].get("suspect", ""))
                for a in self.api("alerts")["alerts"] if a["state"] == "firing"}


@unittest.skipUnless(shutil.which("prometheus"), "Debian's package prometheus is not installed")
class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        before = os.environ.get("MUSTER_SCRAPE_INTERVAL")
        os.environ["MUSTER_SCRAPE_INTERVAL"] = "1s"
        cls.addClassCleanup(lambda: os.environ.pop("MUSTER_SCRAPE_INTERVAL")
                            if before is None else os.environ.update(MUSTER_SCRAPE_INTERVAL=before))
        cls.cluster = Cluster(None, up=("--allow-faults",))
        cls.addClassCleanup(cls.cluster.close)
        cls.http = cls.cluster.up()["http"]
        cls.prometheus = Prometheus(cls.cluster.path("prometheus"), cls.http)
        cls.addClassCleanup(cls.prometheus.close)
        spec = cls.cluster.train_job(steps=1000000, every=100)
        spec["resources"] |= {"peak_tflops": 1, "time_limit": "10h"}
        cls.job = cls.cluster.submit(spec)
        wait_until(cls.prometheus.is_up, "Prometheus is up")
        wait_until(lambda: cls.cluster.checkpoints(cls.job), "there is a checkpoint")
        # The longest window of a panel that is not hours, with scrapes from end to end.
        wait_until(lambda: cls.prometheus.query(
            f'count_over_time(muster_train_steps_total{{job_id="{cls.job}",rank="0"}}[1m]) > 12'),
                   "a dozen scrapes of the run")
        # What marks a checkpoint sees one that came between two scrapes.
        wait_until(lambda: cls.prometheus.query("changes(muster_checkpoint_last_success_step[1m]) > 0"),
                   "a second checkpoint is scraped")

    def test_1_every_target_is_up_and_says_where_it_belongs(self):
        wanted = {"coordinator": "up", "workernode-1": "up", "workernode-2": "up"}
        wait_until(lambda: self.prometheus.targets() == wanted, "all targets are up")
        up = self.prometheus.query('up{component="worker", node="node-1", cluster="cluster"}')
        self.assertEqual(len(up), 1)
        series = self.prometheus.query(f'muster_train_steps_total{{job_id="{self.job}"}}')
        self.assertEqual({(s["metric"]["node"], s["metric"]["rank"]) for s in series},
                         {("node-1", "0"), ("node-2", "1")})

    def test_2_what_is_exported_passes_promtool(self):
        targets = [t["scrapeUrl"] for t in self.prometheus.api("targets")["activeTargets"]]
        for url in targets:
            with self.subTest(url=url):
                done = subprocess.run(["promtool", "check", "metrics"], input=fetch(url), text=True,
                                      capture_output=True, check=False, timeout=30)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_2_names_and_labels_are_those_of_the_reference(self):
        known, seen = metrics.labels_of(ROOT), set()
        for target in self.prometheus.api("targets")["activeTargets"]:
            for name, labels in re.findall(r"^(muster_\w+)(?:\{(.*)\})? ", fetch(target["scrapeUrl"]), re.M):
                name = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertLessEqual(set(re.findall(r'(\w+)="', labels)) - {"le"}, known[name], name)
                seen.add(name)
        self.assertGreater(len(seen), 80)

    def test_3_every_metric_of_a_rule_or_panel_is_there(self):
        texts = [path.read_text(encoding="utf-8") for path in (DEPLOY / "rules").glob("*.yml")]
        expressions = re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n\s+(?:- |labels:|for:|$)", "\n".join(texts))
        expressions += [expression for _, _, expression in generate.expressions()]
        self.assertGreater(len(expressions), 80)
        used = {name for text in expressions
                for name in re.findall(r"\b(?:muster|DCGM)[a-zA-Z0-9_]*(?::\w+)*", text)}
        there = set(self.prometheus.api("label/__name__/values"))
        missing = {name for name in used - there - NEEDS_TLS - NEEDS_DEADLINE - NEEDS_STRAGGLER
                   if not NEEDS_GPU.match(name)}
        # A rule without a value has no series; the panels' test queries those.
        recorded = set(re.findall(r"record: (\S+)", "\n".join(texts)))
        self.assertEqual(missing - recorded, set())

    def test_4_every_panel_shows_something(self):
        for dashboard, panel, expression in generate.expressions():
            if NEEDS_GPU.search(expression) or panel in QUIET_PANELS:
                self.prometheus.query(expression)  # it must be valid all the same
                continue
            with self.subTest(dashboard=dashboard, panel=panel):
                for pattern, shorter in SHORTER[:2]:
                    expression = re.sub(pattern, shorter, expression)
                self.assertTrue(self.prometheus.query(expression), expression)

    def test_5_nothing_fires_while_all_is_well(self):
        firing = {name for name, _, _ in self.prometheus.firing()}
        self.assertEqual(firing - PACE, set())

    def test_6_a_straggler_is_reported(self):
        self.cluster.muster("fault", self.job, "--rank", 1, "--kind", "slow=300%")
        wait_until(lambda: ("MusterStraggler", self.job, "") in self.prometheus.firing(),
                   "the alert of the straggler fires", timeout=45)

    def test_7_a_stopped_rank_is_reported_and_its_counters_go_on(self):
        steps = f'sum(muster_train_steps_total{{job_id="{self.job}",rank="0"}})'
        before = float(self.prometheus.query(steps)[0]["value"][1])
        kill(self.cluster.ranks(self.job)[0], signal.SIGSTOP)
        wait_until(lambda: ("MusterHang", "", "stopped") in self.prometheus.firing(),
                   "the alert of the hang fires", timeout=45)
        wait_until(lambda: self.cluster.get(self.job)["generation"] > 1, "it is trained again")
        wait_until(lambda: self.prometheus.query(f"{steps} > {before}"),
                   "the new process counts on from where the old one was", timeout=30)
        resets = self.prometheus.query(f'resets(muster_train_steps_total{{job_id="{self.job}",rank="0"}}[5m])')
        self.assertEqual([r["value"][1] for r in resets], ["0"])

    def test_8_what_has_ended_goes(self):
        self.cluster.muster("cancel", self.job)
        self.assertEqual(self.cluster.wait(self.job), 11)
        pages = [t["scrapeUrl"] for t in self.prometheus.api("targets")["activeTargets"]]
        wait_until(lambda: all(self.job not in fetch(page) for page in pages),
                   "no series of the run is left", timeout=15)


if __name__ == "__main__":
    unittest.main()
