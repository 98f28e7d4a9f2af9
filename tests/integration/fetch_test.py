"""`muster-trainer fetch` from a Hub on loopback that behaves, and from one that does not."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, init_model, train_job, wait_until, write_rows  # noqa: E402
from fake_hub import COMMIT, REPO, TOKEN, FakeHub  # noqa: E402
from gang import Gang  # noqa: E402

LIMIT_S = 60
WEIGHTS = "model.safetensors"
BAD_INPUT, FAILURE = 78, 1


class Fetch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-fetch-model-")
        cls.addClassCleanup(temp.cleanup)
        model = init_model(pathlib.Path(temp.name) / "model")
        cls.files = {path.name: path.read_bytes() for path in sorted(model.iterdir())}
        cls.files |= {"pytorch_model.bin": b"pickled", "original/params.json": b"{}",
                      "README.md": b"about"}

    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="muster-fetch-")
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        self.cache = self.root / "hub"
        self.repo = self.cache / "models--org--name"
        self.snapshot = self.repo / "snapshots" / COMMIT
        self.hub = FakeHub(dict(self.files)).__enter__()
        self.addCleanup(self.hub.__exit__)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        return {**kept, "HF_HUB_CACHE": str(self.cache), "HF_ENDPOINT": self.hub.endpoint,
                "HF_HOME": str(self.root / "home"), **more}

    def start(self, *arguments, env=None, **how):
        return subprocess.Popen([BIN / "muster-trainer", "fetch", REPO, *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**(env or {})), **how)

    def fetch(self, *arguments, code=0, **how):
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, err)
        return out.strip(), err

    def check_snapshot(self, missing=("pytorch_model.bin", "original/params.json", "README.md")):
        for name, content in self.files.items():
            path = self.snapshot / name
            if name in missing:
                self.assertFalse(path.exists(), name)
            else:
                self.assertTrue(path.is_symlink(), name)
                self.assertEqual(os.readlink(path), f"../../blobs/{self.hub.etag(name)}")
                self.assertEqual(path.read_bytes(), content, name)
        self.assertEqual((self.repo / "refs" / "main").read_text(), COMMIT)
        self.assertEqual(list(self.repo.glob("blobs/*.incomplete")), [])

    def test_a_model_lies_in_the_cache_as_python_puts_it_there(self):
        out, err = self.fetch()
        self.assertEqual(out, str(self.snapshot))
        self.assertIn("model.safetensors", err)
        self.check_snapshot()
        before = len(self.hub.asked)
        self.fetch()
        self.assertEqual([path for _, _, path, _ in self.hub.asked[before:]],
                         [f"/api/models/{REPO}/revision/main?blobs=true"], "nothing comes twice")

    def test_its_name_is_as_good_as_its_path(self):
        self.fetch()
        done = subprocess.run([BIN / "muster-trainer", "generate", "--model", REPO, "--prompt", "Hi",
                               "--max-new-tokens", "3"], timeout=LIMIT_S, capture_output=True,
                              text=True, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([BIN / "muster-trainer", "generate", "--model", REPO + "@v2",
                               "--prompt", "Hi"], timeout=LIMIT_S, capture_output=True, text=True,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn(f"muster-trainer fetch {REPO}@v2", done.stderr)

    def test_a_job_trains_it_by_its_name(self):
        self.fetch()
        spec = train_job(REPO, write_rows(self.root / "rows.jsonl"), self.root / "out", steps=2,
                         nodes=1)
        file = self.root / "job.yaml"
        file.write_text(json.dumps(spec))
        command = [BIN / "muster-trainer", "train", file]
        with Gang(command, world=1, logs=self.root / "logs", env=self.environment()) as gang:
            gang.wait(LIMIT_S)
        self.assertTrue((self.root / "out" / "model" / WEIGHTS).exists())

    def test_the_token_goes_to_the_hub_alone(self):
        self.hub.needs_token = True
        secret = self.root / "token"
        secret.write_text(TOKEN + "\n")
        _, err = self.fetch("--token-file", str(secret))
        self.assertNotIn(TOKEN, err)
        self.check_snapshot()
        for place, _, path, headers in self.hub.asked:
            self.assertEqual("Authorization" in headers, place == "hub", path)

    def test_what_patterns_name_is_fetched_and_nothing_else(self):
        _, err = self.fetch("--include", "original/*", "--include", "*.md")
        self.assertIn("is a part of the model", err)
        self.assertFalse((self.repo / "refs" / "main").exists(), "its name would stand for a part")
        self.assertEqual((self.snapshot / "original" / "params.json").read_bytes(), b"{}")
        self.assertFalse((self.snapshot / "config.json").exists())

    def test_a_model_without_safetensors_is_refused_before_it_comes(self):
        del self.hub.files[WEIGHTS]
        _, err = self.fetch(code=BAD_INPUT)
        self.assertIn("has no safetensors", err)
        self.assertEqual(self.hub.gets("config.json"), [])

    def test_a_broken_connection_is_gone_on_from(self):
        self.hub.breaks[WEIGHTS] = 1_000_000
        _, err = self.fetch()
        self.assertIn("trying again", err)
        self.check_snapshot()
        ranges = [headers.get("Range") for headers in self.hub.gets(WEIGHTS, "cdn")]
        self.assertEqual(ranges, [None, "bytes=1000000-"])

    def test_a_listing_that_breaks_off_is_asked_for_again(self):
        self.hub.listing_breaks = 100
        _, err = self.fetch()
        self.assertIn("trying again", err)
        self.check_snapshot()

    def test_a_fetch_that_was_killed_is_gone_on_from(self):
        self.hub.gate.clear()
        process = self.start()
        self.assertTrue(self.hub.half_sent.wait(LIMIT_S))
        half = len(self.files[WEIGHTS]) // 2
        self.wait_for_bytes(process, half)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        self.assertFalse((self.repo / "refs" / "main").exists(), "it is not whole")
        self.hub.gate.set()
        self.fetch()
        self.check_snapshot()
        ranges = [headers.get("Range") for headers in self.hub.gets(WEIGHTS, "cdn")]
        self.assertEqual(ranges, [None, f"bytes={half}-"])

    def wait_for_bytes(self, process, count):
        partial = self.repo / "blobs" / (self.hub.etag(WEIGHTS) + ".incomplete")
        wait_until(lambda: process.poll() is not None or
                   partial.exists() and partial.stat().st_size >= count,
                   "half of the weights have come", LIMIT_S)
        self.assertIsNone(process.poll())

    def test_bytes_that_are_wrong_once_come_again(self):
        self.hub.spoilt[WEIGHTS] = 1
        _, err = self.fetch()
        self.assertIn("checksum", err)
        self.check_snapshot()

    def test_bytes_that_stay_wrong_are_an_error(self):
        for file in (WEIGHTS, "tokenizer.json"):
            self.hub.spoilt[file] = 99
            _, err = self.fetch(code=BAD_INPUT)
            self.assertIn(f"{file}: what came is not what the Hub announced", err)
            self.assertFalse((self.snapshot / file).exists())
            self.assertFalse((self.repo / "blobs" / self.hub.etag(file)).exists())
            self.hub.spoilt[file] = 0
            shutil.rmtree(self.cache)
        self.fetch()
        self.check_snapshot()

    def test_refusals_say_what_helps(self):
        for refusal, code, words in (
                ((403, "GatedRepo"), BAD_INPUT, f"gated (HTTP 403): ask for access at "
                                                f"{self.hub.endpoint}/{REPO}"),
                ((401, "RepoNotFound"), BAD_INPUT, "HF_TOKEN"),
                ((404, "RevisionNotFound"), BAD_INPUT, "no such revision")):
            self.hub.refusal = refusal
            with self.subTest(refusal=refusal):
                self.assertIn(words, self.fetch(code=code)[1])

    def test_troubles_that_pass_are_waited_for(self):
        self.hub.answers = [(429, {"Retry-After": 0}), (500, {}), (503, {"Retry-After": 0}),
                            (502, {"Retry-After": 0})]
        _, err = self.fetch()
        self.assertIn("HTTP 429", err)
        self.check_snapshot()

    def test_an_answer_that_stays_is_asked_for_once(self):
        self.hub.refusal = (410, "")
        self.assertIn("HTTP 410", self.fetch(code=BAD_INPUT)[1])
        self.assertEqual(len(self.hub.asked), 1)

    def test_a_file_that_does_not_fit_is_refused_before_it_comes(self):
        self.hub.sizes[WEIGHTS] = 10**17
        _, err = self.fetch(code=FAILURE)
        self.assertIn("needs 100 PB", err)
        self.assertEqual(self.hub.gets(WEIGHTS, "cdn"), [])

    def test_a_disk_that_takes_no_more_is_named(self):
        def no_large_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        _, err = self.fetch(code=BAD_INPUT, preexec_fn=no_large_files)
        self.assertIn(f"{self.hub.etag(WEIGHTS)}.incomplete", err)
        self.assertIn("File too large", err)
        self.fetch()
        self.check_snapshot()

    def test_two_at_a_time_fetch_each_file_once(self):
        self.hub.gate.clear()
        first = self.start()
        self.assertTrue(self.hub.half_sent.wait(LIMIT_S))
        second = self.start()
        self.assertIn("waiting for another process", self.line_with(second, "waiting"))
        self.hub.gate.set()
        for process in (first, second):
            self.assertEqual(process.wait(LIMIT_S), 0)
            process.communicate(timeout=LIMIT_S)
        self.check_snapshot()
        self.assertEqual(len(self.hub.gets(WEIGHTS, "cdn")), 1)

    def line_with(self, process, word):
        for line in process.stderr:
            if word in line:
                return line
        return ""


if __name__ == "__main__":
    unittest.main()
