"""Whether the answers that clients got about jobs can have come from one job after another: a checker of
linearizability, for each job by itself.

  for refusal in check(calls): print(refusal)

A call has a time at which it began and, if it was answered, one at which it ended; times are those of one clock. Each
answered call must take effect at one moment between the two. A call without an answer (`answer` is empty: a timeout, a
connection that broke, a client that was killed) may take effect at any moment after its beginning, or never.

The model of a job is what docs/job-lifecycle.md promises to a client. Between calls the system may move a job along
`MOVES` by itself; what a client was answered never goes back. The jobs have no time limit and give way to none, so that only
a client stops them.

The search is that of Wing and Gong, just in time as Lowe has it: it goes through beginnings and ends in order of time
and keeps every configuration (state of the model, calls that have taken effect before their end) that is possible so
far. A call takes effect no earlier than an end requires it. Configurations are kept once, whichever order led there.
The history is refused at the first end that no configuration allows: the calls that had begun by then are its smallest
prefix without an order.
"""

import collections
import dataclasses
import json
import typing

# What the system does by itself. `stopping` is two phases, by what the job is to become; a client sees one word.
MOVES = {
    "absent": (),
    "queued": ("starting",),
    "starting": ("running", "recovering", "succeeded", "failed"),
    "running": ("recovering", "succeeded", "failed"),
    "recovering": ("running", "succeeded", "failed"),
    "suspending": ("suspended", "succeeded", "failed"),
    "cancelling": ("cancelled",),  # a cancel takes precedence
    "suspended": (),
    "succeeded": (),
    "failed": (),
    "cancelled": (),
}
WORDS = {"suspending": "stopping", "cancelling": "stopping"}
GANG = ("starting", "running", "recovering")  # there may be processes, which have to end first
ENDED = ("succeeded", "failed")
SHOWN = 12  # calls of a refused prefix that are printed, the last ones


def _reached():
    """By phase: those that a job can have come to by itself, the phase included."""
    reached = {}
    for phase in MOVES:
        found, ahead = {phase}, [phase]
        while ahead:
            for later in MOVES[ahead.pop()]:
                if later not in found:
                    found.add(later)
                    ahead.append(later)
        reached[phase] = sorted(found)
    return reached


REACHED = _reached()


@dataclasses.dataclass(frozen=True)
class Call:
    """One line of what the clients write. `job` names the history it belongs to: the key of the submission."""
    job: str
    op: str  # submit, get, cancel, suspend, resume
    begin: float
    end: typing.Optional[float] = None
    answer: str = ""  # ok; refused, conflict, absent: it changed nothing; empty: none came
    file: str = ""  # that a submit has with it
    id: str = ""  # of the job: answered to a submit, asked for by all others
    existed: bool = False
    state: str = ""  # in an answer
    generation: int = 0
    step: int = 0
    client: int = 0
    error: str = ""  # what came in the place of an answer

    def __str__(self):
        said = [self.op, self.file, self.id, "->", self.answer or "no answer", self.state]
        if self.op == "submit" and self.answer == "ok":
            said.append("existed" if self.existed else "new")
        if self.generation:
            said.append(f"generation {self.generation} step {self.step}")
        ended = "open" if self.end is None else f"{self.end:.4f}"
        return f"{self.begin:.4f} to {ended} client {self.client}: {' '.join(word for word in said if word)}"


class State(typing.NamedTuple):
    phase: str = "absent"
    file: str = ""
    id: str = ""  # empty: no client knows it yet
    generation: int = 0  # this and the next as they were last read
    step: int = 0

    def __str__(self):
        known = f" at generation {self.generation} step {self.step}" if self.generation else ""
        return self.phase + known


class Refusal(typing.NamedTuple):
    """A history that has no order."""
    job: str
    prefix: list  # calls that had begun when the last one of them, `call`, ended
    call: Call
    states: list  # in which the job may have been, with what had taken effect, before that end

    def __str__(self):
        left_out = max(0, len(self.prefix) - SHOWN)
        lines = [f"job {self.job}: no order of its calls explains this answer:", f"  {self.call}",
                 f"  possible until then: {'; '.join(sorted(set(map(str, self.states))))}",
                 f"  the prefix, of {len(self.prefix)} calls{', the last ones' if left_out else ''}:"]
        return "\n".join(lines + [f"    {call}" for call in self.prefix[left_out:]])


def word(phase):
    return WORDS.get(phase, phase)


def effects(call, state):
    """The states that the job may be in after the call took effect in this one; none: it cannot have been answered so."""
    if call.op == "submit":
        return _submit(call, state)
    if call.answer == "absent":
        return [state] if state.phase == "absent" or call.id != (state.id or call.id) else []
    if state.phase == "absent" or (state.id and call.id != state.id):
        return []
    state = state._replace(id=call.id)
    found = []
    for phase in REACHED[state.phase]:
        found += {"get": _get, "cancel": _cancel, "suspend": _suspend, "resume": _resume}[call.op](
            call, state._replace(phase=phase))
    return found


def _answered(call, state, *phases):
    """Those of the phases that the answer shows; all where none came."""
    return [state._replace(phase=phase) for phase in phases if not call.answer or word(phase) == call.state]


def _submit(call, state):
    if state.phase == "absent":
        if call.answer == "conflict" or call.existed:
            return []
        return _answered(call, State(file=call.file, id=call.id), *REACHED["queued"]) if call.answer else [
            State("queued", call.file)]
    if not call.answer:
        return [state]
    if call.answer == "conflict":
        return [state] if call.file != state.file else []
    if not call.existed or call.file != state.file or (state.id and call.id != state.id):
        return []
    return _answered(call, state._replace(id=call.id), *REACHED[state.phase])


def _get(call, state):
    if word(state.phase) != call.state or (call.generation, call.step) < (state.generation, state.step):
        return []
    return [state._replace(generation=call.generation, step=call.step)]


def _cancel(call, state):
    over = state.phase in ENDED
    if call.answer == "refused" or over:
        return [state] if over and call.answer != "ok" else []
    return _answered(call, state, *(("cancelled",) if state.phase == "cancelled" else ("cancelling", "cancelled")))


def _suspend(call, state):
    too_late = state.phase in (*ENDED, "cancelled", "cancelling")
    if call.answer == "refused":
        return [state] if too_late else []
    if too_late:
        return [] if call.answer else [state]
    if state.phase in ("queued", "suspended"):
        return _answered(call, state, "suspended")
    return _answered(call, state, "suspending", *(("suspended",) if state.phase in GANG else ()))


def _resume(call, state):
    too_late = state.phase in (*ENDED, "cancelled", "cancelling", "suspending")
    if call.answer == "refused":
        return [state] if too_late else []
    if state.phase == "suspended":
        return _answered(call, state, "queued", "starting")  # it may be placed at once
    if too_late:
        return [] if call.answer else [state]
    return _answered(call, state, state.phase)


def check_job(calls):
    """A Refusal, or None. All calls are of one job."""
    # What no answer came of, and changes nothing, says nothing.
    calls = [call for call in calls if call.answer or call.op != "get"]
    events = [(call.begin, 0, index) for index, call in enumerate(calls)]
    # At one time everything begins first: what is not clearly before is beside.
    events += [(call.end, 1, index) for index, call in enumerate(calls) if call.answer]
    configurations, under_way = {(State(), frozenset())}, []
    for _, is_end, index in sorted(events):
        if not is_end:
            under_way.append(index)
            continue
        found = _with_effect(calls, under_way, configurations, index)
        if not found:
            prefix = sorted((call for call in calls if call.begin <= calls[index].end), key=lambda call: call.begin)
            return Refusal(calls[index].job, prefix, calls[index], [state for state, _ in configurations])
        under_way.remove(index)
        configurations = found
    return None


def _with_effect(calls, under_way, configurations, index):
    """The configurations in which the call has taken effect, as late as it can; the call, which is over, is left out."""
    found, seen = set(), set()
    ahead = [(state, _with_reads(calls, under_way, state, done)) for state, done in configurations]
    while ahead:
        state, done = configuration = ahead.pop()
        if configuration in seen:
            continue
        seen.add(configuration)
        if index in done:
            found.add((state, done - {index}))
            continue
        for other in _next(calls, under_way, done):
            for after in effects(calls[other], state):
                ahead.append((after, _with_reads(calls, under_way, after, done | {other})))
    return _least(calls, found)


def _with_reads(calls, under_way, state, done):
    """With all that takes effect now and changes nothing, now or later: it need not be tried in another order."""
    def changes_nothing(call):
        is_read = call.answer and (call.op == "get" or call.answer != "ok" or call.existed)
        return is_read and state in effects(call, state)
    return done.union(index for index in under_way if index not in done and changes_nothing(calls[index]))


def _next(calls, under_way, done):
    """Calls that may take effect next. Of those that ask and were answered the same, the one that ends first: any other
    of them would lead to the same states, and could wait longer."""
    asked = set()
    for index in sorted(under_way, key=lambda each: (calls[each].end is None, calls[each].end)):
        call = calls[index]
        same = dataclasses.replace(call, begin=0, end=None, client=0, error="")
        if index not in done and same not in asked:
            asked.add(same)
            yield index


def _least(calls, configurations):
    """Without those that differ from another one only by more open calls that have taken effect: to have them left can
    but help."""
    groups = collections.defaultdict(list)
    for state, done in configurations:
        groups[state, frozenset(index for index in done if calls[index].answer)].append(done)
    return {(state, done) for (state, _), several in groups.items() for done in several
            if not any(other < done for other in several)}


def check(calls):
    """The Refusals of all histories, in the order in which their jobs are met."""
    histories = collections.defaultdict(list)
    for call in calls:
        histories[call.job].append(call)
    return [refusal for refusal in map(check_job, histories.values()) if refusal]


class History:
    """Calls of clients that go on. One line of JSON is written before a call is made, and one with the same client and
    number when it is over. A call whose first line is not whole, since its client was killed, was not made. Fields of
    `without` are not checked."""

    def __init__(self, without=()):
        self._without = without
        self._fields = {}  # of each call, by client and number
        self._jobs = collections.defaultdict(list)  # keys of _fields
        self._changed = set()  # jobs since the last check

    def add(self, lines):
        """The Calls that were answered by these lines."""
        answered = []
        for line in lines:
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            key = fields["client"], fields.pop("number")
            if key not in self._fields:
                self._fields[key] = {}
                self._jobs[fields["job"]].append(key)
            self._fields[key].update(fields)
            self._changed.add(self._fields[key]["job"])
            if fields.get("answer"):
                answered.append(Call(**self._fields[key]))
        return answered

    def calls(self, job=None):
        """All, or those of a job, in the order in which they were begun."""
        keys = self._fields if job is None else self._jobs[job]
        return [Call(**self._fields[key]) for key in keys]

    def _checked(self, job):
        nothing = {name: Call.__dataclass_fields__[name].default for name in self._without}
        return check_job([dataclasses.replace(call, **nothing) for call in self.calls(job)])

    def check(self):
        """The Refusals of jobs about which something came since the check before."""
        changed, self._changed = self._changed, set()
        return [refusal for refusal in map(self._checked, sorted(changed)) if refusal]
