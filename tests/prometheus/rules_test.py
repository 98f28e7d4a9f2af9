"""Rules and dashboards without a cluster: each alert's cases, and that what is committed is what is meant."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))


# Metrics of dcgm-exporter, from its list of counters.
DCGM = {f"DCGM_FI_DEV_{name}" for name in
        ("XID_ERRORS", "GPU_TEMP", "SM_CLOCK", "GPU_UTIL", "POWER_USAGE")}


def expressions_of(path):
    """The expressions of a file of rules."""
    return re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n\s+(?:- |labels:|for:|#|$)", path.read_text() + "\n")


def promtool(*arguments, **options):
    return subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, check=False,
                          timeout=300, **options)


class Rules(unittest.TestCase):
    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_configurations_and_rules_are_valid(self):
        # Without checking for the certificates, which are the user's.
        for name in ("prometheus.yml", "local.yml"):
            self.check(promtool("check", "config", "--syntax-only", PROMETHEUS / name))
        self.check(promtool("check", "rules", *RULES))

    def test_each_alert_fires_for_what_is_wrong_alone(self):
        self.check(promtool("test", "rules", HERE / "rules_test.yml"))

    def test_each_alert_has_a_case(self):
        alerts = re.findall(r"- alert: (\w+)", (PROMETHEUS / "rules" / "alerts.yml").read_text())
        self.assertEqual(len(alerts), len(set(alerts)))
        cases = (HERE / "rules_test.yml").read_text()
        for alert in alerts:
            self.assertIn(f'ALERTS{{alertname="{alert}",alertstate="firing"', cases)

    def test_each_alert_says_what_to_type_next(self):
        text = (PROMETHEUS / "rules" / "alerts.yml").read_text()
        for alert in text.split("- alert: ")[1:]:
            with self.subTest(alert=alert.split()[0]):
                self.assertRegex(alert, r"severity: (critical|warning)")
                self.assertIn("summary: ", alert)
                self.assertRegex(alert, r"description: >-\s+\S")
                self.assertIn("Next:", alert)

    def test_each_panel_shows_the_chosen_clusters_alone(self):
        for path in (GRAFANA / "dashboards").glob("*.json"):
            dashboard = json.loads(path.read_text())
            asked = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]
            asked += [(one["name"], one["expr"]) for one in dashboard["annotations"]["list"]]
            for title, expression in asked:
                with self.subTest(dashboard=path.name, panel=title):
                    for selector in re.findall(r"\bmuster[_:][\w:]+(\{[^}]*\})?", expression):
                        self.assertRegex(selector, r"""cluster=~["']\$cluster["']""", expression)

    def test_each_alert_and_record_keeps_clusters_apart(self):
        for path in RULES:
            for expression in expressions_of(path):
                # dcgm-exporter knows nothing of clusters, and is joined by UUID.
                for clause in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
                    with self.subTest(expression=expression):
                        self.assertRegex(clause, r"^cluster\b|\bUUID\b")
                self.assertNotRegex(expression, r"\b(sum|max|min|count)\(")

    def test_each_metric_of_a_rule_or_panel_is_exported(self):
        sources = [path for folder in ("coordinator", "worker") for path in (ROOT / folder).rglob("*metrics.cc")]
        exported = {name for path in sources for name in re.findall(r'"(muster_[a-z_]+)"', path.read_text())}
        recorded = {name for path in RULES for name in re.findall(r"record: (\S+)", path.read_text())}
        self.assertGreater(len(exported), 80)
        texts = [expression for path in RULES for expression in expressions_of(path)]
        texts += [text for path in (GRAFANA / "dashboards").glob("*.json")
                  for text in re.findall(r'"(?:expr|definition)": "(.*)"', path.read_text())]
        names = {name for text in texts for name in re.findall(r"\b(?:muster|DCGM)[_:][\w:]+", text)}
        self.assertGreater(len(names), 60)
        unknown = {name for name in names - recorded - DCGM
                   if re.sub(r"_(bucket|sum|count)$", "", name) not in exported}
        self.assertEqual(unknown, set())

    def test_dashboards_are_what_their_table_says(self):
        self.check(subprocess.run([sys.executable, "-B", str(GRAFANA / "generate.py"), "--check"], text=True,
                                  capture_output=True, check=False, timeout=60))

    def test_a_dashboard_that_was_changed_by_hand_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("generate.py", "spec.py"):
                (pathlib.Path(folder) / name).write_bytes((GRAFANA / name).read_bytes())
            program = [sys.executable, "-B", str(pathlib.Path(folder) / "generate.py")]
            subprocess.run(program, check=True, timeout=60)
            victim = pathlib.Path(folder) / "dashboards" / "muster-cluster.json"
            victim.write_text(victim.read_text().replace("Waiting", "Queueing"))
            done = subprocess.run([*program, "--check"], text=True, capture_output=True, check=False,
                                  timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("muster-cluster.json", done.stderr)

    def test_each_panels_expression_is_valid_and_its_place_its_own(self):
        rules = subprocess.run([sys.executable, "-B", str(GRAFANA / "generate.py"), "--rules"], text=True,
                               capture_output=True, check=True, timeout=60).stdout
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(rules)
            file.flush()
            self.check(promtool("check", "rules", file.name))
        for path in (GRAFANA / "dashboards").glob("*.json"):
            cells = set()
            for panel in json.loads(path.read_text())["panels"]:
                place = panel["gridPos"]
                mine = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                        for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(cells & mine, f"{path.name}: {panel['title']} lies over another panel")
                self.assertLessEqual(place["x"] + place["w"], 24)
                cells |= mine


if __name__ == "__main__":
    unittest.main()
