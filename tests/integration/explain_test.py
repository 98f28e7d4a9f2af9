"""explain, plan and submit --check-index, against real daemons."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, wait_until  # noqa: E402


def sleeper(name, nodes, limit=None, **more):
    resources = {"nodes": nodes, "ranks_per_node": 1, **more}
    if limit:
        resources["time_limit"] = limit
    return {"name": name, "resources": resources, "command": ["sleep", "600"]}


def keys(answer):
    return {change["key"]: change for change in answer["changes"]}


class Explain(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self, slots=1)

    def submit_running(self, spec):
        job = self.cluster.submit(spec)
        wait_until(lambda: self.cluster.get(job)["state"] == "running", f"{spec['name']} runs")
        return job

    def plan(self, spec, *options, **more):
        return self.cluster.muster("plan", self.cluster.write_job(spec), *options, **more)

    def plan_json(self, spec, *options):
        return json.loads(self.plan(spec, *options, "-o", "json").stdout)

    def test_a_waiting_job_names_what_holds_it_and_the_change_that_starts_it(self):
        first = self.submit_running(sleeper("first", 1, "1h"))
        wide = self.cluster.submit(sleeper("wide", 2, "1h"))
        answer = self.cluster.json("explain", wide)
        self.assertEqual((answer["id"], answer["state"], answer["start"]),
                         (wide, "queued", "promised"))
        self.assertEqual((answer["nodes_needed"], answer["nodes_with_room"]), (2, 1))
        self.assertEqual(answer["causes"], [{"code": "occupied", "nodes": 1, "lack": "slots"}])
        self.assertEqual([b["job"] for b in answer["blockers"]], [first])
        self.assertEqual(keys(answer)["nodes"]["value"], 1)
        longer = self.cluster.submit(sleeper("longer", 1, "3h"))
        text = self.cluster.muster("explain", "longer").stdout
        self.assertIn(f"room until job {wide} (wide) starts", text)
        limit = keys(self.cluster.json("explain", longer))["time_limit"]["value"]
        self.cluster.muster("update", longer, "--time-limit", f"{limit}s")
        wait_until(lambda: self.cluster.get(longer)["state"] == "running", "it starts, as was said")

    def test_a_longer_limit_that_delays_a_promise_takes_force(self):
        first = self.submit_running(sleeper("first", 1, "1h"))
        wide = self.cluster.submit(sleeper("wide", 2, "1h"))
        promised = self.cluster.json("explain", wide)["start_at"]
        longer = ("update", first, "--time-limit", "4h")
        refused = self.cluster.muster(*longer, check=False)
        self.assertEqual(refused.returncode, 6, refused.stderr)
        self.assertIn(f"would delay the promised start of job {wide} (wide)", refused.stderr)
        self.assertIn("--force", refused.stderr)
        self.cluster.muster(*longer, "--force")
        self.assertGreater(self.cluster.json("explain", wide)["start_at"][:13], promised[:13])
        self.assertIn(f"the time limit of job {first} (first) was raised by force",
                      self.cluster.muster("events", wide).stdout)

    def test_a_job_that_does_not_wait_is_explained_too(self):
        first = self.submit_running(sleeper("first", 1))
        self.assertIn("has run since", self.cluster.muster("explain", first).stdout)
        held = self.cluster.submit(sleeper("held", 1), "--hold")
        self.assertEqual(self.cluster.json("explain", held)["causes"], [{"code": "held"}])
        self.cluster.muster("cancel", first)
        self.assertEqual(self.cluster.wait(first), 11)
        self.assertIn("cancelled by a user", self.cluster.muster("explain", first).stdout)
        unknown = self.cluster.muster("explain", "nothing", check=False)
        self.assertEqual(unknown.returncode, 3, unknown.stderr)

    def test_a_plan_holds_until_something_changes(self):
        spec = sleeper("two", 2, "1h")
        planned = self.plan_json(spec)
        self.assertEqual((planned["start"], len(planned["nodes"])), ("now", 2))
        self.assertEqual(self.cluster.json("get"), [])
        self.submit_running(sleeper("first", 1, "1h"))
        file = self.cluster.write_job(spec)
        refused = self.cluster.muster("submit", file, "--check-index", planned["index"],
                                      check=False)
        self.assertEqual(refused.returncode, 6, refused.stderr)
        self.assertIn("nothing was submitted", refused.stderr)
        planned = self.plan_json(spec)
        self.assertEqual(planned["start"], "promised")
        self.assertEqual(keys(planned)["nodes"]["value"], 1)
        self.cluster.muster("submit", file, "--check-index", planned["index"])
        self.assertEqual(len(self.cluster.json("get")), 2)

    def test_what_submit_refuses_plan_refuses(self):
        spec = sleeper("big", 1, ranks_per_node=64)
        planned = self.plan(spec, check=False)
        submitted = self.cluster.muster("submit", self.cluster.write_job(spec), check=False)
        self.assertEqual((planned.returncode, planned.stderr), (8, submitted.stderr))

    def test_the_plan_of_a_train_job_has_its_memory(self):
        spec = self.cluster.train_job(steps=10)
        text = self.plan(spec).stdout
        self.assertIn("would start now on", text)
        self.assertIn("Memory of its ranks", text)
        self.assertTrue(self.plan_json(spec)["memory"])


if __name__ == "__main__":
    unittest.main()
