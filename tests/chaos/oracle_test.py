"""The oracle of the chaos runner sees what it is there to see."""

import copy
import pathlib
import random
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import oracle  # noqa: E402
from faults import FAULTS, Injected  # noqa: E402


def run_of(steps):
    return {"model": "abc", "steps": {step: {"loss": 1.0 / step, "grad_norm": 2.0, "lr": 0.1,
                                             "tokens": 10 * step, "samples": step,
                                             "sample_chain": f"{step:x}"} for step in steps}}


def attempt(generation, cause, state="ended"):
    return {"generation": generation, "state": state, "cause": cause}


class Compare(unittest.TestCase):
    def setUp(self):
        self.wanted = run_of(range(1, 6))
        self.got = copy.deepcopy(self.wanted)

    def test_equal_runs(self):
        self.assertEqual(oracle.compare(self.got, self.wanted), [])

    def test_the_last_bit_of_a_loss(self):
        self.got["steps"][3]["loss"] *= 1 + 2**-52
        self.assertIn("step 3: loss", oracle.compare(self.got, self.wanted)[0])

    def test_other_weights(self):
        self.got["model"] = "abd"
        self.assertIn("weights", oracle.compare(self.got, self.wanted)[0])

    def test_a_missing_step_and_one_too_many(self):
        del self.got["steps"][2]
        self.got["steps"][9] = self.got["steps"][1]
        self.assertEqual(len(oracle.compare(self.got, self.wanted)), 2)

    def test_a_full_disk_may_hide_steps_but_not_change_them(self):
        del self.got["steps"][2]
        self.assertEqual(oracle.compare(self.got, self.wanted, all_steps=False), [])
        self.got["steps"][4]["grad_norm"] = 3.0
        self.assertEqual(len(oracle.compare(self.got, self.wanted, all_steps=False)), 1)

    def test_fewer_ranks_may_round_otherwise_but_see_the_same_samples(self):
        self.got["steps"][3]["loss"] = 0.5
        self.got["model"] = "abd"
        self.assertEqual(oracle.compare(self.got, self.wanted, same_size=False), [])
        self.got["steps"][3]["sample_chain"] = "ff"
        self.assertEqual(len(oracle.compare(self.got, self.wanted, same_size=False)), 1)


class Digest(unittest.TestCase):
    def test_content_and_names_count(self):
        digests = set()
        for name, text in (("a", "1"), ("a", "2"), ("b", "1")):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / name).write_text(text)
                digests.add(oracle.digest(folder))
        self.assertEqual(len(digests), 3)


class Timeline(unittest.TestCase):
    KILLED = Injected("kill-rank", "rank 1", r"rank 1 .*SIGKILL")

    def check(self, attempts, alone=True):
        return oracle.check_timeline({"attempts": attempts}, [(1, self.KILLED, alone)])

    def test_a_cause_that_names_it(self):
        self.assertEqual(self.check([attempt(1, "rank 1 on node-2 was killed by SIGKILL")]), [])

    def test_no_attempt_ended_for_it(self):
        self.assertEqual(len(self.check([attempt(1, "every rank has finished")])), 1)

    def test_another_rank_is_named(self):
        attempts = [attempt(1, "rank 0 on node-1 was killed by SIGKILL")]
        self.assertEqual(len(self.check(attempts)), 1)
        self.assertEqual(self.check(attempts, alone=False), [])

    def test_a_nan_that_is_reported_as_another_ranks(self):
        class Cluster:
            def ranks(self, job):
                return {1: 100}

            def muster(self, *args):
                pass
        arena = types.SimpleNamespace(cluster=Cluster())
        nan = FAULTS["nan"].inject(arena, "j", random.Random(1))
        told = "rank {0} on node-1 exited with code 79: step 9: loss is nan; not finite is rank {0}: " \
            "loss of micro-batch 0 (line 3 of train.jsonl)"
        for rank, violations in ((1, 0), (0, 1)):
            job = {"attempts": [attempt(1, told.format(rank))]}
            self.assertEqual(len(oracle.check_timeline(job, [(1, nan, True)])), violations)

    def test_an_attempt_without_a_cause(self):
        attempts = [attempt(1, "rank 1 on node-2 was killed by SIGKILL"), attempt(2, "")]
        self.assertEqual(self.check(attempts), ["attempt 2 ended without a cause"])

    def test_a_fault_that_must_end_the_job(self):
        nan = Injected("nan", "rank 1", terminal=True)
        job = {"state": "succeeded", "reason": "finished"}
        self.assertEqual(len(oracle.check_end(job, [(1, nan, True)])), 1)
        self.assertEqual(oracle.check_end(job, [(1, self.KILLED, True)]), [])

    def test_slots_in_use(self):
        nodes = [{"name": "node-1", "slots_used": 0}, {"name": "node-2", "slots_used": 1}]
        self.assertEqual(len(oracle.check_free(nodes)), 1)


if __name__ == "__main__":
    unittest.main()
