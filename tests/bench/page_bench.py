#!/usr/bin/env python3
"""The status page of a coordinator with many jobs and nodes: its first paint, and how late a step is shown.

  page_bench.py [--jobs 1000] [--nodes 1000] [--runs 15] [--steps 30]

`page_cluster` (ninja page_cluster) serves the page in front of a controller whose jobs train. The first
paint counts from the navigation's start to the end of the frame in which the browser has drawn the first
contents, among them the first page of jobs and a square for each node. The lag counts from when the
controller is told that a step is finished to its number in the document, with both pages: the overview and
the job's own. Prints one JSON object.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from browser import Browser  # noqa: E402
from cluster import BIN, ROOT  # noqa: E402

WANTED_PAINT_S = 0.3
WANTED_LAG_S = 1.0

# A message that is sent in a frame's callbacks arrives when that frame has been painted.
PAINTED = """
const look = () => {
  const rows = document.querySelectorAll('#jobs tbody tr').length;
  const squares = document.querySelectorAll('#fleet i').length;
  if (rows < %(rows)d || squares < %(nodes)d) return requestAnimationFrame(look);
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    const first = performance.getEntriesByName('first-contentful-paint')[0];
    window.painted = Math.max(performance.now(), first ? first.startTime : 0);
  };
  channel.port2.postMessage(0);
};
requestAnimationFrame(look);
"""

# When each step was first in the document, by the clock that the coordinator has too.
SHOWN = """
window.shown = {};
new MutationObserver(() => {
  const text = document.querySelector(%(selector)s)?.textContent ?? '';
  const step = /^(?:step )?(\\d+) of/.exec(text.replaceAll(',', ''));
  if (step) window.shown[step[1]] ??= Date.now();
}).observe(document.body, {subtree: true, childList: true, characterData: true});
"""


class PageCluster:
    def __init__(self, jobs, nodes):
        self.process = subprocess.Popen([str(BIN / "page_cluster"), str(jobs), str(nodes)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.is_at = json.loads(self.process.stdout.readline())

    def address(self, path):
        return f"http://{self.is_at['http']}{path}#key={self.is_at['key']}"

    def steps(self, count):
        """The next ones of the watched job from now on, with when the controller was told of them."""
        now = 1000 * time.time()
        steps = []
        while len(steps) < count:
            step = json.loads(self.process.stdout.readline())
            steps += [step] if step["unix_ms"] > now else []  # the pipe has those of before too
        return steps

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def first_paint(browser, cluster, jobs, nodes):
    page = browser.open()
    page.send("Page.addScriptToEvaluateOnNewDocument",
              source=PAINTED % {"rows": min(25, jobs), "nodes": nodes})
    page.go(cluster.address("/"))
    seconds = page.wait_for("window.painted", timeout=60) / 1000
    page.close()
    return seconds


def lags(browser, cluster, path, selector, count):
    page = browser.open(cluster.address(path))
    page.wait_for("document.getElementById('connection').textContent === 'live'")
    page.evaluate(SHOWN % {"selector": json.dumps(selector)})
    told = cluster.steps(count)
    page.wait_for(f"window.shown[{told[-1]['step']}]", timeout=30)
    shown = page.evaluate("window.shown")
    page.close()
    return [(shown[str(step["step"])] - step["unix_ms"]) / 1000 for step in told if str(step["step"]) in shown]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    rounds = machine.Rounds()
    cluster = PageCluster(options.jobs, options.nodes)
    try:
        with Browser() as browser:
            first_paint(browser, cluster, options.jobs, options.nodes)  # reads the browser from disk
            for _ in range(options.runs):
                rounds.take({"first_paint": lambda: first_paint(browser, cluster, options.jobs, options.nodes)})
            late = {"overview": lags(browser, cluster, "/", "#jobs tbody tr .steps span", options.steps),
                    "job": lags(browser, cluster, f"/jobs/{cluster.is_at['job']}", "#progress-text",
                                options.steps)}
    finally:
        cluster.close()
    paint = statistics.median(rounds.values["first_paint"])
    result = {"benchmark": "page", "machine": machine.describe(), "revision": machine.revision(ROOT),
              "jobs": options.jobs, "nodes": options.nodes, "running": cluster.is_at["running"],
              "first_paint": rounds.summaries()["first_paint"], "wanted_first_paint_s": WANTED_PAINT_S,
              "within_wanted_first_paint": paint <= WANTED_PAINT_S,
              "lag": {name: machine.summary(values) for name, values in late.items()},
              "wanted_lag_s": WANTED_LAG_S,
              "within_wanted_lag": max(max(values) for values in late.values()) <= WANTED_LAG_S,
              "busy": rounds.busy()}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
