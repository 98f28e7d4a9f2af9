"""The coordinator's status page in headless Chromium: what it shows of a running cluster, that it is live and
readable, that it runs nothing of what users wrote, and that nobody without its key is told anything.

Screenshots lie in MUSTER_SCREENSHOTS, where that is set, else with the test's cluster.
"""

import http.client
import os
import pathlib
import re
import sys
import time
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from browser import Browser  # noqa: E402
from cluster import Cluster, read_metrics, wait_until  # noqa: E402

EVIL = "</pre><script>document.title = 'taken'; alert(1)</script><img src=x onerror=alert(2)>"
LAG_S = 1.0
# Elements that extend beyond their card.
BEYOND_ITS_CARD = """[...document.querySelectorAll('.card *')].filter((element) =>
    element.getBoundingClientRect().right > element.closest('.card').getBoundingClientRect().right + 0.5 &&
    element.checkVisibility() && !element.closest('svg, .log, .stages'))
    .map((element) => element.outerHTML.slice(0, 80))"""
# The worst contrast of any visible text with its background (WCAG 2.2, 1.4.3).
CONTRAST = """(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(element).backgroundColor);
      if (a === 1) return `rgb(${r} ${g} ${b})`;
    }
    return 'rgb(255 255 255)';
  };
  let worst = [21, ''];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('svg, script, noscript')) continue;
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < worst[0]) worst = [ratio, texts.currentNode.data.trim().slice(0, 60)];
  }
  return worst;
})()"""


def lines_of(png):
    """How many different lines of pixels a picture has, as they are filtered."""
    width = int.from_bytes(png[16:20], "big")
    channels = {2: 3, 6: 4}[png[25]]
    data, at = b"", 8
    while at < len(png):
        length = int.from_bytes(png[at:at + 4], "big")
        if png[at + 4:at + 8] == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += length + 12
    pixels, stride = zlib.decompress(data), 1 + width * channels
    return len({pixels[row:row + stride] for row in range(0, len(pixels), stride)})


class StatusPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None, nodes=2, slots=3)
        cls.addClassCleanup(cls.cluster.close)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.address = cls.cluster.json("page")["url"]
        cls.origin = cls.address.split("/#")[0]
        cls.train = cls.cluster.submit(cls.cluster.train_job(name="finetune", steps=100000, every=200))
        script = f"import time\nprint({EVIL!r}, flush=True)\nprint('\\x1b[31mred\\x1b[0m', flush=True)\ntime.sleep(600)"
        cls.script = cls.cluster.submit({
            "name": "a-script", "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cpu"},
            "env": {"EVIL": EVIL}, "workdir": str(cls.cluster.root), "command": [sys.executable, "-c", script]})
        cls.waiting = cls.cluster.submit({
            "name": "too-large", "resources": {"nodes": 2, "ranks_per_node": 3, "device": "cpu"},
            "workdir": str(cls.cluster.root), "command": ["true"]})
        cls.cluster.wait_for_step(cls.train, 5)
        cls.shots = pathlib.Path(os.environ.get("MUSTER_SCREENSHOTS", cls.cluster.root))
        cls.shots.mkdir(parents=True, exist_ok=True)

    def open(self, path="/", **options):
        """A page of the coordinator that must end without an error and without a request to another host."""
        page = self.browser.open(self.origin + path + "#" + self.address.split("#")[1], **options)
        self.addCleanup(self.check, page)
        page.wait_for("document.getElementById('connection').textContent === 'live'")
        return page

    def open_job(self, job, **options):
        page = self.open(f"/jobs/{job}", **options)
        page.wait_for("!document.getElementById('head').hidden")
        return page

    def check(self, page):
        self.browser.hear_all()
        self.assertEqual(page.troubles, [])
        self.assertTrue(page.requests)
        for address in page.requests:
            self.assertTrue(address.startswith(self.origin + "/"), address)
            self.assertNotIn(self.address.split("=")[1], address.split("#")[0], "the key is in no request's line")
        page.close()

    def keep(self, page, name):
        picture = page.screenshot(self.shots / f"{name}.png")
        self.assertGreater(lines_of(picture), 100, f"{name} shows next to nothing")

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection(self.origin.removeprefix("http://"), timeout=20)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, "" if answer.status == 200 else answer.read().decode()
        finally:
            connection.close()

    def test_the_overview_shows_queue_nodes_and_problems(self):
        page = self.open()
        rows = "[...document.querySelectorAll('#jobs tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' '))"
        page.wait_for(f"{rows}.some((row) => row.includes('finetune running'))", "the job is seen to run")
        shown = page.evaluate(rows)
        self.assertEqual([row.split()[0] for row in shown[:3]], ["finetune", "a-script", "too-large"], shown)
        self.assertRegex(shown[0], r"finetune running [\d,]+ of 100,000 \d+\.\d+")
        self.assertIn("queued", shown[2])
        self.assertEqual(page.evaluate("document.querySelectorAll('#fleet i.good').length"), 2)
        self.assertRegex(page.text("#tiles"), r"Nodes ready\s+2\s+of 2")
        page.wait_for("document.querySelector('#problems').textContent.includes('Job too-large waits')")
        self.assertEqual(page.evaluate("location.hash"), "", "the key stands in the address no longer")
        page.evaluate("document.querySelector('#jobs-filter button:nth-child(3)').click()")
        self.assertEqual(page.evaluate("document.querySelectorAll('#jobs tbody tr').length"), 1)
        page.evaluate("document.querySelector('#jobs-filter button').click()")
        self.keep(page, "overview-light")

    def test_a_step_is_shown_within_a_second(self):
        page = self.open_job(self.train)
        step = "Number(/step ([\\d,]+)/.exec(document.getElementById('progress-text').textContent)[1].replace(/,/g, ''))"
        page.wait_for(f"{step} > 0")
        lags = []
        for _ in range(6):
            done = max(read_metrics(self.cluster.output(self.train)))
            began = time.monotonic()
            page.wait_for(f"{step} >= {done}", f"step {done} is shown")
            lags.append(time.monotonic() - began)
        # Other load on the machine can make any of them late, but not the best one.
        self.assertLess(min(lags), LAG_S, lags)

    def test_a_job_has_curves_times_memory_ranks_and_a_log(self):
        page = self.open_job("finetune")
        page.wait_for("document.querySelectorAll('#charts path.line').length === 4", "four curves are drawn")
        page.wait_for("document.querySelector('#loss-chart path.line').getAttribute('d').split('L').length > 3")
        tiles = page.text("#tiles")
        self.assertRegex(tiles, r"p95 [\d.]+ m?s, p99 [\d.]+ m?s")
        self.assertRegex(tiles, r"Memory\s+[\d.]+ [MG]iB")
        self.assertEqual(page.evaluate("document.querySelectorAll('#ranks tbody tr').length"), 2)
        self.assertRegex(page.text("#ranks"), r"node-1\s+running")
        self.assertRegex(page.text("#goodput"), r"[\d.]+ % of its slots' time brought steps[\s\S]*step [\d.]+ m?s")
        page.wait_for("document.getElementById('log').textContent.includes('step')", "rank 0's log is shown")
        # A slow rank comes first in the table: which row is rank 1's changes.
        page.evaluate("[...document.querySelectorAll('#ranks a')].find(link => link.textContent === '1').click()")
        page.wait_for("document.getElementById('log-state').textContent.includes('rank-1.log')")
        wait_until(lambda: self.point_at_the_loss(page), "the curve tells what is under the pointer", timeout=20)
        self.keep(page, "job-light")

    def point_at_the_loss(self, page):
        """Whether the curve described the step. The log that was requested before is further down."""
        page.evaluate("document.querySelector('#loss-chart').scrollIntoView({block: 'center'})")
        box = page.evaluate("document.querySelector('#loss-chart .plot').getBoundingClientRect().toJSON()")
        page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + box["width"] / 2,
                  y=box["y"] + box["height"] / 2)
        return page.evaluate("document.querySelector('#loss-chart .readout').textContent.includes('at step')")

    def test_what_users_write_stays_text(self):
        page = self.open_job(self.script)
        page.wait_for(f"document.getElementById('log').textContent.includes({EVIL!r})")
        page.wait_for("document.getElementById('log').textContent.includes('\\nred\\n')", "without a terminal's colours")
        self.assertIn(EVIL.replace("'", "''"), page.evaluate("document.getElementById('spec-text').textContent")
                      .replace("'", "''"))
        self.cluster.muster("cancel", self.script, "--reason", EVIL)
        page.wait_for("document.getElementById('state').textContent === 'cancelled'")
        page.wait_for(f"document.body.textContent.includes({EVIL!r})")
        self.assertTrue(page.evaluate("document.title").startswith("a-script - cancelled"))
        self.assertEqual(page.evaluate("document.querySelectorAll('main script, main img').length"), 0)
        with self.assertRaisesRegex(AssertionError, "TrustedHTML"):
            page.evaluate("document.body.innerHTML = '<p>'")
        self.browser.hear_all()
        self.assertEqual(len(page.troubles), 1, page.troubles)  # this one, which was wanted
        page.troubles.clear()

    def test_a_killed_rank_appears_in_a_timeline_that_is_open(self):
        page = self.open_job(self.train)
        before = page.evaluate("document.querySelectorAll('#timeline > li').length")
        self.cluster.kill_rank(self.train, 1)
        page.wait_for(f"document.querySelectorAll('#timeline > li').length > {before}", "another attempt is told")
        page.wait_for("/Training again .* after the fault/.test(document.querySelector('#timeline > li').innerText)",
                      "how long the recovery took is told", timeout=40)
        told = page.text("#timeline > li:nth-child(2)")
        self.assertIn("SIGKILL", told)
        self.assertIn("rank 1 on node-2", told)
        # Each stage that took any time: a rank's death is detected at once.
        self.assertRegex(page.text("#timeline > li"), r"called out[\s\S]*first step")
        page.wait_for("document.querySelectorAll('#loss-chart .mark').length > 0", "the curve has a mark")
        self.keep(page, "job-recovered")

    def test_a_job_that_succeeded_shows_nothing_as_a_failure(self):
        job = self.cluster.submit({
            "name": "succeeds", "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
            "priority": 90,  # ahead of the job that is too large
            "workdir": str(self.cluster.root), "command": ["true"]})
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        page = self.open_job(job)
        page.wait_for("document.querySelectorAll('#ranks .state').length === 2")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#ranks .state')].map((state) => "
                                       "state.textContent + ', ' + state.className)"),
                         2 * ["exited 0, state good"])
        self.assertEqual(page.evaluate("document.querySelector('#timeline > li').className"), "good")
        self.assertIn("Ended with success", page.text("#timeline > li"))
        self.assertEqual(page.evaluate("document.querySelectorAll('main .bad, main .cause').length"), 0)
        self.keep(page, "job-succeeded")

    def test_it_can_be_read_in_the_dark_in_the_light_and_on_a_phone(self):
        # A name that is longer than its column, in a table as wide as it gets.
        long = self.cluster.submit({
            "name": "finetune-of-a-large-model-with-adapters-of-rank-64", "workdir": str(self.cluster.root),
            "resources": {"nodes": 2, "ranks_per_node": 3, "device": "cpu"}, "command": ["true"]})
        self.addCleanup(self.cluster.muster, "cancel", long)
        for name, path in (("overview", "/"), ("job", f"/jobs/{self.train}")):
            grounds = set()
            for dark in (False, True):
                page = self.open(path, dark=dark)
                page.wait_for("document.querySelectorAll('tbody tr').length > 0")
                worst, text = page.evaluate(CONTRAST)
                self.assertGreaterEqual(worst, 4.5, f"{name}, {'dark' if dark else 'light'}: {text!r}")
                grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                if dark:
                    self.keep(page, f"{name}-dark")
            self.assertEqual(len(grounds), 2)
            for width in (1480, 1405, 1395, 1280, 1165, 1155, 800):
                page = self.open(path, width=width)
                page.wait_for("document.querySelectorAll('tbody tr').length > 0")
                self.assertEqual(page.evaluate(BEYOND_ITS_CARD), [], f"{name}, {width} wide")
            page = self.open(path, width=360, height=780, phone=True)
            page.wait_for("document.querySelectorAll('tbody tr').length > 0")
            wide = page.evaluate("""[...document.querySelectorAll('body *')].filter((element) =>
                element.getBoundingClientRect().right > 360.5 && element.checkVisibility() &&
                !element.closest('svg, .log, .stages')).map((element) => element.outerHTML.slice(0, 80))""")
            self.assertEqual(wide, [])
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
            self.keep(page, f"{name}-phone")

    def test_without_the_key_nothing_is_sent(self):
        page = self.browser.open(self.origin + "/")
        page.wait_for("document.getElementById('notice').textContent.includes('muster page')")
        self.assertNotIn("finetune", page.text())
        # The address with the key, typed into the same tab, makes it work.
        page.send("Page.navigate", url=self.address)
        page.wait_for("document.querySelector('#jobs').innerText.includes('finetune')")
        page.close()
        for path in ("/api/v1/events", f"/api/v1/log?job={self.train}"):
            status, _, text = self.ask(path)
            self.assertEqual((status, "muster page" in text), (403, True), path)
            self.assertEqual(self.ask(path, headers={"Authorization": "Bearer " + 64 * "0"})[0], 403)
            # Another page in the same browser: its origin gives it away even with the key.
            key = {"Authorization": "Bearer " + self.address.split("=")[1]}
            self.assertEqual(self.ask(path, headers=key)[0], 200)
            self.assertEqual(self.ask(path, headers={**key, "Origin": "http://127.0.0.1:1"})[0], 403)

    def test_a_key_that_comes_while_the_page_asks_where_to_sign_in_is_used(self):
        page = self.browser.open("about:blank")
        page.send("Page.addScriptToEvaluateOnNewDocument", source="""
            const answered = window.fetch;
            window.fetch = async (...asked) => {
              if (asked[0] === '/auth/session') await new Promise((resolve) => setTimeout(resolve, 1000));
              return answered(...asked);
            };""")
        page.go(self.origin + "/")
        page.wait_for("document.getElementById('notice').textContent.includes('muster page')")
        page.send("Page.navigate", url=self.address)
        page.wait_for("document.querySelector('#jobs').innerText.includes('finetune')")
        page.close()

    def test_it_is_read_only_and_loads_nothing_from_elsewhere(self):
        for path in ("/", f"/jobs/{self.train}", "/api/v1/events", "/assets/page.js"):
            for method in ("POST", "PUT", "DELETE"):
                self.assertEqual(self.ask(path, method)[0], 405, f"{method} {path}")
        for path in ("/", f"/jobs/{self.train}"):
            status, headers, _ = self.ask(path)
            self.assertEqual(status, 200)
            policy = headers["Content-Security-Policy"]
            self.assertTrue(policy.startswith("default-src 'none'; "), policy)
            self.assertNotRegex(policy, r"unsafe|\*|https?:")
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertEqual((headers["X-Content-Type-Options"], headers["Referrer-Policy"]),
                             ("nosniff", "no-referrer"))

    def test_a_job_that_does_not_exist_says_so(self):
        page = self.browser.open(self.origin + "/jobs/nobody#" + self.address.split("#")[1])
        page.wait_for("document.getElementById('notice').textContent.includes(\"no job 'nobody'\")")
        page.close()

    def test_the_command_says_how_to_get_there_from_elsewhere(self):
        said = self.cluster.muster("page").stdout
        port = re.search(r":(\d+)$", self.origin)[1]
        self.assertIn(self.address, said)
        self.assertRegex(said, rf"ssh -N -L \d+:127\.0\.0\.1:{port} \S+")
        endpoint = self.cluster.dir / "coordinator" / "endpoint.json"
        self.assertEqual(endpoint.stat().st_mode & 0o777, 0o600)

    def test_it_comes_back_when_the_coordinator_does_and_needs_its_new_key(self):
        cluster = Cluster(self, nodes=1, slots=1)
        page = self.browser.open(cluster.json("page")["url"])
        page.wait_for("document.querySelector('#tiles').innerText.includes('of 1')")
        cluster.muster("down")
        page.wait_for("document.getElementById('connection').textContent === 'reconnecting'")
        cluster.up()
        page.wait_for("document.getElementById('notice').textContent.includes('makes a new one when it starts')",
                      timeout=30)
        page.send("Page.navigate", url=cluster.json("page")["url"])
        page.wait_for("document.getElementById('connection').textContent === 'live'")
        page.close()


if __name__ == "__main__":
    unittest.main()
