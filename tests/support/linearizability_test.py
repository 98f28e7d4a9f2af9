"""The checker of linearizability refuses each history that no order explains, for its own reason, and no other.

A history is written as calls that follow each other, ` | ` between them: `submit FILE [ID new|old STATE | conflict]`,
`get [STATE [gGENERATION sSTEP] | absent]`, `cancel`, `suspend`, `resume` with `[STATE | refused]`; what comes without an
answer stays open. `@BEGIN-END`, or `@BEGIN` of an open call, is its time, `#ID` the id that is asked for where it is not j1.
"""

import re
import unittest
from random import Random
from unittest import mock

import linearizability
from linearizability import Call, History, check

NEW = "submit a j1 new queued"

# By name: the history, and the same one with a single call changed, left out or at another time, which has an order. What
# differs is thus what it is refused for.
REFUSED = {
    "a submitted job is absent": (f"{NEW} | get absent", f"{NEW} | get queued"),
    "a job is there before its submission": (f"get queued | {NEW}", f"get absent | {NEW}"),
    "a job is read by an id that it does not have": (f"{NEW} | get queued #j2", f"{NEW} | get absent #j2"),
    "the same key and file give another job": (f"{NEW} | submit a j2 old queued", f"{NEW} | submit a j1 old queued"),
    "the same key and file give a new job": (f"{NEW} | submit a j1 new queued", f"{NEW} | submit a j1 old queued"),
    "another file is taken for the same": (f"{NEW} | submit b j1 old queued", f"{NEW} | submit b conflict"),
    "the same file conflicts": (f"{NEW} | submit a conflict", f"{NEW} | submit a j1 old queued"),
    "the first submission conflicts": (f"submit a conflict | {NEW}", f"{NEW} | submit b conflict"),
    "the first submission existed": ("submit a j1 old queued | get queued", f"{NEW} | get queued"),
    "two submissions at once are both new": (
        "submit a j1 new queued @1-5 | submit a j1 new queued @2-6",
        "submit a j1 new queued @1-5 | submit a j1 old queued @2-6"),
    "an existing submission ends before the new one begins": (
        "submit a j1 old queued @1-2 | submit a j1 new queued @3-4",
        "submit a j1 old queued @1-3.5 | submit a j1 new queued @3-4"),
    "a cancelled job runs": (f"{NEW} | cancel cancelled | get running", f"{NEW} | cancel cancelled | get cancelled"),
    "a cancelled job is queued": (f"{NEW} | cancel cancelled | get queued", f"{NEW} | get queued | cancel cancelled"),
    "a cancelled job succeeds": (f"{NEW} | cancel stopping | get succeeded", f"{NEW} | cancel stopping | get cancelled"),
    "a job that is being cancelled is suspended": (
        f"{NEW} | cancel stopping | suspend suspended", f"{NEW} | cancel stopping | suspend refused"),
    "a job that is being cancelled is resumed": (
        f"{NEW} | cancel stopping | resume running", f"{NEW} | cancel stopping | resume refused"),
    "a cancel is answered that finds the job over": (
        f"{NEW} | get succeeded | cancel cancelled", f"{NEW} | get succeeded | cancel refused"),
    "a cancel is refused while the job goes on": (
        f"{NEW} | cancel refused | get running", f"{NEW} | cancel refused | get failed"),
    "a job is cancelled though no client asked": (f"{NEW} | get cancelled", f"{NEW} | cancel | get cancelled"),
    "a cancel is lost between two reads": (
        f"{NEW} | cancel @21-30 | get stopping @31-32 | get running @33-34".replace("@21-30", "@21"),
        f"{NEW} | cancel @21 | get running @31-32 | get stopping @33-34"),
    "a suspended job runs": (f"{NEW} | suspend suspended | get running", f"{NEW} | suspend suspended | resume queued | get running"),
    "a suspended job is queued": (f"{NEW} | suspend suspended | get queued", f"{NEW} | suspend suspended | resume | get queued"),
    "a suspended job succeeds": (f"{NEW} | suspend suspended | get succeeded", f"{NEW} | suspend stopping | get succeeded"),
    "a job that is being suspended runs again": (
        f"{NEW} | suspend stopping | get running", f"{NEW} | suspend stopping | get suspended | resume queued | get running"),
    "a job is suspended though no client asked": (f"{NEW} | get suspended", f"{NEW} | suspend | get suspended"),
    "a suspend is refused while the job runs": (
        f"{NEW} | suspend refused | get running", f"{NEW} | suspend refused | get succeeded"),
    "a suspend is answered that finds the job over": (
        f"{NEW} | get failed | suspend suspended", f"{NEW} | get failed | suspend refused"),
    "a resume is answered and the job stays suspended": (
        f"{NEW} | suspend suspended | resume queued | get suspended", f"{NEW} | suspend suspended | resume queued | get queued"),
    "a resume is refused of a suspended job": (
        f"{NEW} | suspend suspended | resume refused", f"{NEW} | suspend stopping | resume refused"),
    "a resume is answered while the job is being suspended": (
        f"{NEW} | suspend stopping | resume running | get suspended", f"{NEW} | suspend stopping | resume refused | get suspended"),
    "one open resume frees a job twice": (
        f"{NEW} | suspend suspended | resume @30 | get running @41-42 | suspend suspended @43-44 | get running @45-46",
        f"{NEW} | suspend suspended | resume @30 | get running @41-42 | suspend suspended @43-44 | resume @44.5 | get running @45-46"),
    "an open suspend takes effect before it began": (
        f"{NEW} | get suspended @20-21 | suspend @22", f"{NEW} | get suspended @20-21 | suspend @20.5"),
    "a finished job runs": (f"{NEW} | get succeeded | get running", f"{NEW} | get running | get succeeded"),
    "a failed job has succeeded": (f"{NEW} | get failed | get succeeded", f"{NEW} | get failed | get failed"),
    "a running job is queued again": (f"{NEW} | get running | get queued", f"{NEW} | get queued | get running"),
    "a job stops though no client asked": (f"{NEW} | get stopping", f"{NEW} | suspend | get stopping"),
    "a running job starts again": (f"{NEW} | get running | get starting", f"{NEW} | get running | get recovering"),
    "a generation falls": (f"{NEW} | get running g2 s5 | get running g1 s5", f"{NEW} | get running g2 s5 | get running g2 s5"),
    "a step falls within a generation": (
        f"{NEW} | get running g1 s5 | get running g1 s4", f"{NEW} | get running g1 s5 | get running g2 s4"),
    "two reads at once see two orders": (
        f"{NEW} | cancel @20 | get cancelled @30-40 | get running @41-42 | get running @31-39",
        f"{NEW} | cancel @20 | get cancelled @30-40 | get running @31-39"),
}

LINEARIZABLE = {
    "nothing was called": "",
    "an open submission took effect": "submit a @1 | get running @5-6",
    "an open submission never took effect": "submit a @1 | get absent @5-6 | get absent @7-8",
    "an open submission takes effect late": "submit a @1 | get absent @5-6 | get queued @7-8",
    "the repetition of an open submission is new": "submit a @1 | submit a j1 new queued @5-6",
    "the repetition of an open submission existed": "submit a @1 | submit a j1 old running @5-6",
    "an open submission with another file came first": "submit b @1 | submit a conflict @5-6",
    "an open submission with another file came second": "submit b @1 | submit a j1 new queued @5-6 | submit b conflict @7-8",
    "an open cancel takes effect after a later read": f"{NEW} | cancel @20 | get running @30-31 | get cancelled @32-33",
    "an open cancel comes too late": f"{NEW} | cancel @20 | get running @30-31 | get succeeded @32-33",
    "open suspend and resume in either order": f"{NEW} | resume @20 | suspend @21 | get suspended @30-31 | get running @32-33",
    "an open suspend after an answered resume": f"{NEW} | suspend @20 | resume queued @25-26 | get suspended @30-31",
    "an open suspend of a cancelled job": f"{NEW} | suspend @20 | cancel cancelled @30-31 | get cancelled @32-33",
    "an open read says nothing": f"{NEW} | get @20 | cancel cancelled",
    "many open calls": " | ".join([NEW, *(f"{op} @{20 + i}" for i in range(8) for op in ("suspend", "resume")),
                                   "get running @40-41", "get suspended @42-43", "get running @44-45", "cancel stopping @46-47",
                                   "get cancelled @48-49"]),
    "two cancels at once": f"{NEW} | cancel stopping @20-30 | cancel cancelled @21-29 | get cancelled @31-32",
    "a long life": " | ".join([NEW, *(f"get running g1 s{step}" for step in range(500)), "get recovering g1 s499",
                               "get running g2 s490", "suspend stopping", "get suspended g2 s495", "resume starting",
                               "get running g3 s495", "get succeeded g3 s600", "cancel refused", "submit a j1 old succeeded"]),
    "a suspend of a job that has no processes yet": f"{NEW} | get recovering | suspend suspended | get suspended",
}

# What a checker may get wrong: an attribute of the module, what takes its place, and a history that it accepts then.
_real_effects, _real_check_job = linearizability.effects, linearizability.check_job


def _moves(**more):
    moves = {phase: tuple(later) + tuple(more.get(phase, ())) for phase, later in linearizability.MOVES.items()}
    with mock.patch.object(linearizability, "MOVES", moves):
        return linearizability._reached()


def _changed(**fields):
    return lambda call, state: _real_effects(call.__class__(**{**call.__dict__, **fields}), state)


def _forgetful(**fields):
    return lambda call, state: [after._replace(**fields) for after in _real_effects(call, state)]


def _without_time(calls):
    return _real_check_job([Call(**{**call.__dict__, "begin": 0}) for call in calls])


def _lossy(calls):
    return _real_check_job([call for call in calls if call.answer])


def _believed(op):
    return lambda call, state: [state] if call.op == op and call.answer else _real_effects(call, state)


MUTANTS = {
    "cancelled jobs come back": ("REACHED", _moves(cancelled=["queued"]), "a cancelled job is queued"),
    "cancels do not take precedence": ("REACHED", _moves(cancelling=["succeeded"]), "a cancelled job succeeds"),
    "suspended jobs resume by themselves": ("REACHED", _moves(suspended=["queued"]), "a suspended job is queued"),
    "suspended jobs end": ("REACHED", _moves(suspended=["succeeded"]), "a suspended job succeeds"),
    "jobs that are being suspended run": ("REACHED", _moves(suspending=["running"]), "a job that is being suspended runs again"),
    "jobs are suspended by themselves": ("REACHED", _moves(running=["suspended"]), "a job is suspended though no client asked"),
    "jobs are cancelled by themselves": ("REACHED", _moves(running=["cancelled"]), "a job is cancelled though no client asked"),
    "jobs are submitted by themselves": ("REACHED", {**linearizability.REACHED, "succeeded": ["running", "succeeded"]},
                                         "a finished job runs"),
    "failures pass": ("REACHED", _moves(failed=["succeeded"]), "a failed job has succeeded"),
    "running jobs are queued": ("REACHED", _moves(running=["queued"]), "a running job is queued again"),
    "generations are not remembered": ("effects", _forgetful(generation=0), "a generation falls"),
    "steps are not remembered": ("effects", _forgetful(step=0), "a step falls within a generation"),
    "ids are not remembered": ("effects", _forgetful(id=""), "a job is read by an id that it does not have"),
    "files are the same": ("effects", _changed(file="a"), "another file is taken for the same"),
    "whether a job existed does not count": (
        "effects", lambda call, state: _changed(existed=state.phase != "absent")(call, state), "the same key and file give a new job"),
    "answers of cancels do not count": ("effects", _believed("cancel"), "a cancel is refused while the job goes on"),
    "answers of suspends do not count": ("effects", _believed("suspend"), "a suspend is refused while the job runs"),
    "answers of resumes do not count": ("effects", _believed("resume"), "a resume is refused of a suspended job"),
    "calls may take effect before they began": ("check_job", _without_time, "an open suspend takes effect before it began"),
}


def history(text):
    calls = []
    for number, part in enumerate(filter(None, text.split(" | ")), 1):
        time = re.search(r"@([\d.]+)(?:-([\d.]+))?", part)
        asked = re.search(r"#(\w+)", part)
        op, *words = re.sub(r"[@#]\S+", "", part).split()
        fields = {"id": asked.group(1) if asked else "j1"}
        if op == "submit":
            fields = {"file": words.pop(0)}
        begin = float(time.group(1)) if time else 10.0 * number
        if words and words[0] in ("conflict", "absent", "refused"):
            fields["answer"] = words[0]
        elif words:
            fields["answer"] = "ok"
            if op == "submit":
                fields |= {"id": words[0], "existed": words[1] == "old", "state": words[2]}
            else:
                fields["state"] = words[0]
                numbers = dict(re.findall(r"\b([gs])(\d+)", " ".join(words[1:])))
                fields |= {"generation": int(numbers.get("g", 0)), "step": int(numbers.get("s", 0))}
        end = (float(time.group(2)) if time else begin + 5) if words else None
        calls.append(Call("k1", op, begin, end, **fields))
    return calls


def has_an_order(calls, state=linearizability.State()):
    """By trying every order."""
    if not any(call.answer for call in calls):
        return True
    first_end = min(call.end for call in calls if call.answer)
    return any(has_an_order([other for other in calls if other is not call], after)
               for call in calls if call.begin <= first_end for after in linearizability.effects(call, state))


def any_history(random):
    calls = []
    for number in range(random.randint(2, 6)):
        op = random.choice(("get", "get", "submit", "cancel", "suspend", "resume")) if number else "submit"
        begin = random.uniform(0, 4) + number / 2
        fields = {"file": random.choice("aab"), "id": "j1"} if op == "submit" else {"id": "j1"}
        answer = random.choice(("ok", "ok", "ok", "conflict" if op == "submit" else "refused" if op != "get" else "ok", ""))
        if answer == "ok":
            fields |= {"state": random.choice(("queued", "queued", "running", "suspended", "cancelled")),
                       "existed": op == "submit" and random.random() < 0.5}
        calls.append(Call("k1", op, begin, begin + random.uniform(0, 4) if answer else None, answer, **fields))
    return calls


class Linearizability(unittest.TestCase):
    def test_it_says_what_a_search_through_all_orders_says(self):
        random = Random(1)
        verdicts = []
        for _ in range(600):
            calls = any_history(random)
            verdicts.append(has_an_order(calls))
            self.assertEqual(not check(calls), verdicts[-1], "\n".join(map(str, calls)))
        self.assertGreater(min(verdicts.count(True), verdicts.count(False)), 50)

    def test_each_history_without_an_order_is_refused_and_its_mended_twin_is_not(self):
        self.assertGreaterEqual(len(REFUSED), 20)
        for name, (refused, mended) in REFUSED.items():
            with self.subTest(name):
                self.assertEqual(len(check(history(refused))), 1)
                self.assertEqual([str(refusal) for refusal in check(history(mended))], [])

    def test_histories_with_open_calls_have_an_order(self):
        self.assertGreaterEqual(len(LINEARIZABLE), 10)
        for name, text in LINEARIZABLE.items():
            with self.subTest(name):
                self.assertEqual([str(refusal) for refusal in check(history(text))], [])

    def test_each_mutant_of_the_checker_accepts_a_history_without_an_order(self):
        for name, (what, mutant, accepts) in MUTANTS.items():
            with self.subTest(name), mock.patch.object(linearizability, what, mutant):
                self.assertEqual(check(history(REFUSED[accepts][0])), [], accepts)

    def test_a_checker_that_forgets_open_calls_refuses_what_has_an_order(self):
        with mock.patch.object(linearizability, "check_job", _lossy):
            self.assertEqual(len(check(history(LINEARIZABLE["an open submission took effect"]))), 1)

    def test_a_refusal_shows_the_smallest_prefix_and_what_was_possible(self):
        calls = history(f"{NEW} | cancel cancelled | get running | get cancelled")
        refusal = check(calls)[0]
        self.assertEqual((refusal.call, refusal.prefix), (calls[2], calls[:3]))
        self.assertIn("possible until then: cancelled", str(refusal))
        self.assertNotIn("get j1 -> ok cancelled", str(refusal))

    def test_jobs_have_nothing_to_do_with_each_other(self):
        both = history(NEW) + [Call("k2", "get", 20, 25, "absent", id="j2")]
        self.assertEqual(check(both), [])

    def test_calls_are_read_also_of_clients_that_were_killed(self):
        lines = ['{"client": 1, "number": 1, "job": "k", "op": "submit", "file": "a", "begin": 1}',
                 '{"client": 2, "number": 1, "job": "k", "op": "cancel", "id": "j", "begin": 2}',
                 '{"client": 1, "number": 1, "end": 3, "answer": "ok", "id": "j", "state": "queued"}',
                 '{"client": 2, "number": 2, "job": "k", "op": "resu']
        history_of = History()
        history_of.add(lines)
        self.assertEqual(history_of.calls(), [
            Call("k", "submit", 1, 3, "ok", file="a", id="j", state="queued", client=1),
            Call("k", "cancel", 2, id="j", client=2)])

    def test_a_history_is_checked_again_where_something_came_to_it(self):
        history_of = History()
        history_of.add(['{"client": 1, "number": 1, "job": "k", "op": "get", "id": "j", "begin": 1}'])
        self.assertEqual(history_of.check(), [])
        history_of.add(['{"client": 1, "number": 1, "end": 3, "answer": "ok", "state": "queued"}'])
        self.assertEqual(len(history_of.check()), 1)
        self.assertEqual(history_of.check(), [])

    def test_a_field_can_be_left_out_of_the_check(self):
        lines = ['{"client": 1, "number": 1, "job": "k", "op": "submit", "id": "j", "begin": 1, "end": 2, "answer": "ok", "state": "queued"}',
                 '{"client": 1, "number": 2, "job": "k", "op": "get", "id": "j", "begin": 3, "end": 4, "answer": "ok", '
                 '"state": "running", "generation": 1, "step": 9}',
                 '{"client": 1, "number": 3, "job": "k", "op": "get", "id": "j", "begin": 5, "end": 6, "answer": "ok", '
                 '"state": "running", "generation": 1, "step": 8}']
        for without, refused in (((), 1), (("step",), 0), (("generation",), 1)):
            history_of = History(without)
            history_of.add(lines)
            self.assertEqual(len(history_of.check()), refused, without)


if __name__ == "__main__":
    unittest.main()
