"""docs/reference/symptoms.md out of coordinator/detect/cause_advice.cc, which advises on cause cards."""

import re

SOURCE = "coordinator/detect/cause_advice.cc"
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# What stands between literals of an answer, and what a page says in its place.
NODE = re.compile(r"OnNode\(evidence\)")
NAME = re.compile(r"\(evidence\.node\.value\.empty\(\)[^;]*?evidence\.node\.value\)")


# Stands for a semicolon of a text, so that a semicolon ends a statement.
MARK = "\1"


def without_semicolons(source):
    return LITERAL.sub(lambda text: text[0].replace(";", MARK), source)


def sentence(expression):
    """The text that an expression of literals makes."""
    return "".join(LITERAL.findall(NODE.sub('"the node"', NAME.sub('"NODE"', expression)))).replace(MARK, ";").strip()


def body(source, function):
    """Of a function of that name."""
    start = re.search(rf"^std::string {function}\([^;]*?\) \{{$", source, re.M)
    return source[start.end():source.index("\n}\n", start.end())]


def cases(text):
    """([names of cases], answer) of a switch, those without an answer of literals left out."""
    for labels, answer in re.findall(r"((?:\s*case [\w:]+:)+)\s*return ([^;]*);", text):
        if (said := sentence(answer)) and not re.match(r"\w+\(", answer):
            yield re.findall(r"case (?:\w+::)?(\w+):", labels), said


def kinds(root):
    """{enumerator: name} of causes."""
    enumerators = re.search(r"enum class CauseKind \{(.*?)\};", (root / "coordinator/domain/records.h").read_text(
        encoding="utf-8"), re.S).group(1)
    names = re.search(r'\{((?:\s*"[a-z_]*",?)+)\s*\}', (root / "coordinator/domain/records.cc").read_text(
        encoding="utf-8")).group(1)
    order = re.findall(r"^  (k\w+)", enumerators, re.M)
    found = re.findall(r'"([a-z_]*)"', names)
    if len(order) != len(found):
        raise SystemExit("coordinator/domain/records: as many names as causes are expected")
    return dict(zip(order, found))


def rows(title, pairs):
    return f"## {title}\n\n| symptom | what to do |\n|---|---|\n" + "".join(
        f"| {symptom} | {advice} |\n" for symptom, advice in pairs) + "\n"


def phases(source):
    """What a rank stood in, and what that means."""
    text = body(source, "Hung")
    for condition, answer in re.findall(r"if \(([^{]*)\) \{\s*return ([^;]*);", text):
        where = re.findall(r"TrainPhase::k(\w+)", condition)
        state = re.search(r'process_state == "(\w)"', condition)
        yield (", ".join("in " + re.sub(r"(?<!^)([A-Z])", r" \1", name).lower() for name in where)
               or f"process state {state.group(1)}"), sentence(answer)
    yield "in anything else", sentence(text[text.rindex("return "):])


def page(root):
    source = without_semicolons((root / SOURCE).read_text(encoding="utf-8"))
    words = [(", ".join(f"\"{each}\"" for each in LITERAL.findall(said)), sentence(answer)) for said, answer in
             re.findall(r"if \(Says\(words, \{(.*?)\}\)\) \{\s*return ([^;]*);", body(source, "FromWords"), re.S)]
    named = kinds(root)
    causes = [(", ".join(f"`{named[each]}`" for each in names), said)
              for names, said in cases(source[source.index("std::string AdviceFor("):])]
    # What follows from the job file is added to the first part.
    causes.append((f"`{named['kNonFinite']}`", sentence(
        re.search(r"std::string advice =((?:.|\n)*?);", body(source, "NonFinite")).group(1))
                   + sentence(body(source, "NonFinite").rsplit("return ", 1)[1])))
    causes.append((f"`{named['kBadInput']}`", sentence(body(source, "BadInput").rsplit("return ", 1)[1])))
    causes.append((f"`{named['kDeviceFault']}`", "By its [number](#by-the-number-of-a-gpus-fault). Without one: "
                   + sentence(body(source, "DeviceFault").rsplit("return ", 1)[1])))
    causes.append((f"`{named['kOutOfMemory']}`", "The card lists which keys of the job save memory, by what is not sharded, "
                   "offloaded, recomputed or kept in fewer bits yet; `muster-trainer plan` says how much."))
    signals = [(", ".join(names), said) for names, said in cases(body(source, "Signalled"))]
    exits = [(f"exit code {code}", sentence(answer)) for code, answer in
             re.findall(r"case (\d+): return ([^;]*);", body(source, "Exited"))]
    xids = [(f"Xid {number}", sentence(advice)) for number, advice in re.findall(r"XidAdvice\{(\d+),\s*([^}]*)\}", source)]
    return ("# Symptoms\n\nWhat `muster describe JOB` and the status page advise, by what was found. A job's own card "
            "names its node, keys and numbers as well.\n\n"
            + rows("By the cause of an attempt's end", causes)
            + rows("By words of a message, a log or an exit", words)
            + rows("By where a rank stood still (`hung`)", phases(source))
            + rows("By the signal that ended a rank", signals + exits)
            + rows("By the number of a GPU's fault", xids)).rstrip() + "\n"
