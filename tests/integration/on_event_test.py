"""The webhooks of a job's on_event are posted, once for each event, and never disturbs the job."""

import http.server
import json
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, wait_until  # noqa: E402


class Sink(http.server.BaseHTTPRequestHandler):
    """Keeps every event, and refuses it: a receiver that fails is no fault of the job."""

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.events.append(json.loads(self.rfile.read(length)))
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_):
        pass


class OnEvent(unittest.TestCase):
    def test_a_webhook_gets_the_events_and_a_failing_one_is_no_fault_of_the_job(self):
        sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        sink.events = []
        threading.Thread(target=sink.serve_forever, daemon=True).start()
        self.addCleanup(sink.shutdown)
        host = f"127.0.0.1:{sink.server_port}"
        cluster = Cluster(self, up=("--webhook-hosts", host))
        spec = cluster.train_job(steps=60)
        spec["on_event"] = {"kinds": ["rank_exited", "succeeded"],
                            "webhook": f"http://{host}/muster"}
        job = cluster.submit(spec)
        cluster.wait_for_step(job, 10)
        cluster.kill_rank(job, 1)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))

        def kinds():
            return [event["kind"] for event in sink.events]
        wait_until(lambda: "succeeded" in kinds(), "the last event is posted")
        exited = [e for e in sink.events if e["kind"] == "rank_exited"]
        self.assertTrue(any("rank 1" in e["message"] for e in exited), sink.events)
        self.assertEqual(kinds().count("succeeded"), 1)


if __name__ == "__main__":
    unittest.main()
