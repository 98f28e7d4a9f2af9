#!/usr/bin/env python3
"""Repository lint: rules of the house that a compiler does not check.

  lint.py [ROOT]            prints one line per violation, FILE:LINE: RULE: what is wrong and what to do;
                            exit 1 when there is one
  lint.py --worst [ROOT]    the ten largest classes and functions instead

The rules are the functions of RULES below; CONTRIBUTING.md explains them.
"""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import product_lines  # noqa: E402
import rename  # noqa: E402

FILE_LINES = 1000
FUNCTION_LINES = 70
CLASS_FUNCTIONS = 40
CLASS_LINES = 600
# Of README.md and docs/*.md together.
DOCUMENTATION_WORDS = 45_000
# Product code that runs as root: all of worker/launcher but the worker's side of it.
ROOT_LINES = 600
# One "WHERE WHAT: REASON" a line: "FILE FUNCTION" or "FILE CLASS" is better in one piece, "MODULE MODULE" is an include
# upwards.
EXCEPTIONS = "tests/lint/exceptions.txt"
MAX_EXCEPTIONS = 10
# Its table names what each module includes.
DRAWING = "docs/architecture.md"
CODE = (".cc", ".h", ".cu", ".cuh")
TEXT = (".cc", ".h", ".proto", ".py", ".sh", ".cmake", ".txt", ".md", ".yaml", ".json", ".sbatch", "")

# Where support of tests lies, below its module.
TESTING = "/testing/"

# Header pattern, folders and files that may include it, where to go instead.
INCLUDE_TABLE = (
    (r"grpcpp/|grpc/|.*\.pb\.h", ("common/rpc/", "coordinator/service/", "worker/service/", "worker/allocation/",
                                  "common/wire/codec", "common/wire/inventory_codec", "common/wire/message_checks", "coordinator/replay/", "coordinator/store/", "coordinator/server.cc", "cli/",
                                  "tests/"),
     "keep messages in the service layer and pass plain values"),
    (r"ATen/|torch/|c10/", ("trainer/ops/", "trainer/plugin/", "trainer/model/", "trainer/fsdp/",
                            "trainer/report/memory_report.cc", "trainer/train/", "trainer/comm/rendezvous/tcp_store.cc",
                            "trainer/verbs/", "trainer/main.cc",
                            "tests/parity/", "tests/bench/", "tests/integration/doomed_rank.cc", "cmake/"),
     "keep Torch out of what need not know it"),
    (r"nccl\.h|cuda", ("trainer/ops/cuda/", "trainer/plugin/cuda/"), "device code is a plug-in of its own"),
    (r"boost/(asio|beast)", ("common/runtime/", "common/telemetry/", "common/rpc/", "worker/",
                             "tests/fuzz/http_fuzz.cc", "tests/support/https_get.h"),
     "use EventLoop and Timer of common/runtime"),
    (r"trainer/text/chat/jinja/", ("trainer/text/chat/", "tests/fuzz/jinja_fuzz.cc"),
     "go through ChatTemplate of trainer/text/chat/chat.h"),
    (r"yaml-cpp/", ("common/job_spec/", "cli/migrate/document.cc", "coordinator/access/user_file.cc", "coordinator/pilots/pool_config.cc", "coordinator/queues/queue_file.cc", "worker/fabric/fake_gpus.cc"),
     "parse job files with common/job_spec"),
    (r"prometheus/", ("common/telemetry/", "coordinator/metrics"),
     "assemble metrics with common/telemetry/metrics.h"),
    (r"sqlite3\.h", ("coordinator/store/",), "go through Store"),
    (r"zstd\.h", ("coordinator/store/",), "go through ArchivePack"),
    (r"pcre2\.h", ("trainer/text/tokenizer/",), "go through Tokenizer"),
    (r"curl/", ("common/http/",), "go through HttpClient of common/http"),
    (r"openssl/", ("trainer/hub/", "trainer/comm/rendezvous/peer_proof.cc", "common/security/"),
     "go through ContentCheck of trainer/hub, peer_proof.h of trainer/comm/rendezvous, or common/security"),
    (r"common/security/(openssl_handles|pem|certificate_builder)\.h", ("common/security/",),
     "go through CertificateAuthority and certificate.h"),
    (r"utf8proc\.h", ("trainer/text/tokenizer/", "trainer/text/chat/jinja/"), "go through Tokenizer"),
)

# Programs that share nothing but proto and common.
APART = ("coordinator", "worker", "trainer", "cli")
# But for what runs the coordinator's scheduler without a coordinator, and what works on its store.
SHARED = ("coordinator/backup/", "coordinator/replay/")
# Where a folder is a module.
PRODUCT = ("common", *APART)

# Where the messages, events and records are that cross a boundary.
RECORDS = ("common/wire/messages.h", "coordinator/control/effects.h", "coordinator/control/events.h",
           "coordinator/domain/records.h", "worker/guardian/protocol.h")

# Call, folders and files that may use it, where to go instead.
BANNED_CALLS = (
    (r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(", ("tests/support/eventually.h",),
     "wait on a condition with a deadline, or use Timer"),
    # A write to a dead disk may never return: the guardian must end without that thread.
    (r"\bstd::thread\b[^;]*\.detach\(\)|\bthread_?\.detach\(\)|\}\)\.detach\(\)", ("worker/guardian/log_files",),
     "own and join the thread"),
    (r"(?<![\w.>:])(std::|::)?system\s*\(", (), "start programs with common/process"),
    (r"(?<![\w.>:])(::)?popen\s*\(", (), "start programs with common/process"),
    (r"(?<![\w.>:])(::)?(fork|vfork)\s*\(\)", ("common/process/", "worker/process/", "worker/guardian/", "worker/agent/", "worker/launcher/",
                                               "cli/local/local_cluster", "_test.cc", TESTING, "tests/"),
     "start programs with common/process"),
)

# Spelled in parts, so that this file passes its own rules.
NOTES = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK")) + r")\b")
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(" + "|".join(("work", "far" "m", "root", r"home/\w+"))
                           + r")/|/tmp/bash_" r"jobs")
# The client of a model hub has its address.
REGISTRY_CLIENTS = ("common/base/hub_id.h",)
REGISTRY_HOSTS = re.compile("|".join((r"py" r"pi\.org", "python" "hosted", r"deb" r"ian\.org",
                                      r"github" r"usercontent", r"hugging" r"face\.co\b")))
# Folders whose comments are under the prose rule.
PROSE_FOLDERS = ("cli/", "common/", "configs/", "coordinator/", "deploy/", "proto/", "slurm/", "tests/chaos/",
                 "tests/integration/", "tests/lint/", "tests/prometheus/", "tests/simulation/", "tests/slurm/",
                 "tests/support/", "trainer/", "worker/")
PROSE = re.compile(r"\b(?:[tT]old|[nN]obody|[sS]omebody|[wW]hoever)\b|(?:^|[-*|.:;] )Of(?: (?:an?|the|its)\b|$)")
# Folders whose tests' names and texts are under it as well.
PROSE_TESTS = ("cli/", "common/")
TEST_NAME = re.compile(r"\bTEST(?:_[FP])?\(\w+,\s*(\w+)\)")
TEST_TEXT = re.compile(r'<< "((?:\\.|[^"\\])*)"')
NAME_PROSE = re.compile(r"^Of(?=[A-Z])|(?:Tells?|Told|Nobody|Somebody|Whoever|Whom)(?![a-z])")
COMMENTS = {**dict.fromkeys((*CODE, ".proto"), re.compile(r"(?:^|\s)//+\s*(.*)")),
            ".py": re.compile(r"(?:^|\s)#+\s*(.*)"), ".md": re.compile(r"\s*(.*)")}
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
GENERATED = re.compile(r"<!-- generated: .*?<!-- end of generated -->", re.S)
CHANGE_KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


class Tree:
    """The files under lint: what git knows, or all but build/ where there is no git."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.files = sorted(self._list())
        self._lines = {}
        self.exceptions = {}  # "WHERE WHAT": line
        for number, line in enumerate(self.lines(EXCEPTIONS) if EXCEPTIONS in self.files else (), 1):
            if match := re.fullmatch(r"(\S+ \S+): \S.*", line):
                self.exceptions[match.group(1)] = number
        self.excused = set()

    def _list(self):
        if (self.root / ".git").exists():
            listed = subprocess.run(
                ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root), "ls-files",
                 "--cached", "--others", "--exclude-standard", "-z"],
                capture_output=True, text=True, check=True)
            return [f for f in listed.stdout.split("\0") if f and (self.root / f).is_file()]
        return [str(p.relative_to(self.root)) for p in self.root.rglob("*")
                if p.is_file() and p.relative_to(self.root).parts[0] != "build"]

    def excuse(self, where, what):
        """Whether an exception covers it, which then is of use."""
        self.excused.add(f"{where} {what}")
        return f"{where} {what}" in self.exceptions

    def having(self, suffixes):
        return [f for f in self.files if os.path.splitext(f)[1] in suffixes]

    def lines(self, name):
        if name not in self._lines:
            text = (self.root / name).read_bytes().decode("utf-8", errors="replace")
            self._lines[name] = text.splitlines()
        return self._lines[name]


def without_comment(line):
    return line.split("//", 1)[0]


def allowed(name, places):
    return any(name.startswith(p) or name.endswith(p) or p == TESTING and p in name for p in places)


def includes(tree, name):
    for number, line in enumerate(tree.lines(name), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1)


def check_includes(tree):
    for name in tree.having(CODE):
        own = name.split("/", 1)[0]
        for number, header in includes(tree, name):
            for pattern, places, instead in INCLUDE_TABLE:
                test = name.endswith("_test.cc") and "pb" in pattern
                if re.match(pattern, header) and not test and not allowed(name, places):
                    yield name, number, f"<{header}> may not be included here: {instead}"
            other = header.split("/", 1)[0]
            if own in APART and other in APART and other != own and not header.startswith(SHARED):
                yield name, number, f"{own} may not include {other}: share through proto or common"
            if own in ("common", "proto") and other in APART:
                yield name, number, f"{own} may not include {other}: dependencies point the other way"


def is_test(name):
    return name.endswith("_test.cc") or TESTING in name or name.startswith("tests/")


def drawn_modules(tree):
    """{module: (line, modules that it includes)} of the table, from bottom to top."""
    rows, inside = {}, False
    for number, line in enumerate(tree.lines(DRAWING), 1):
        if line.startswith("#"):
            inside = line == "## Modules"
        elif inside and (row := re.fullmatch(r"\| `([\w/]+)` \|(.*)\|", line)):
            targets = set()
            for target in re.findall(r"`([^`]+)`", row.group(2)):
                folder, _, parts = target.rstrip("}").partition("{")
                targets |= {folder + part for part in parts.split(",")}
            rows[row.group(1)] = number, targets
    return rows


def included_modules(tree):
    """{module: {included module: (file, line) of the first include}} of what is no test."""
    sources = [name for name in tree.having(CODE) if name.startswith(tuple(p + "/" for p in PRODUCT)) and not is_test(name)]
    modules = {os.path.dirname(name): {} for name in sources}
    for name in sources:
        for number, header in includes(tree, name):
            other = "proto" if header.endswith(".pb.h") else os.path.dirname(header)
            if other != os.path.dirname(name) and (other in modules or other == "proto"):
                modules[os.path.dirname(name)].setdefault(other, (name, number))
    return modules


def check_modules(tree):
    """A folder is a module; the table of the architecture names exactly what it includes, from bottom to top."""
    if DRAWING not in tree.files:
        return
    rows, modules = drawn_modules(tree), {"proto": {}, **included_modules(tree)}
    order = {module: place for place, module in enumerate(rows)}
    for module, found in modules.items():
        if module not in rows:
            if module != "proto":
                yield DRAWING, 1, f"{module} is no row of the table of modules: add it"
            continue
        line, drawn = rows[module]
        for other, (name, number) in found.items():
            if other not in drawn and other != "common/base":
                yield name, number, f"{module} may not include {other}: {DRAWING}:{line} does not name it"
        for other in sorted(drawn - found.keys() | drawn & {"common/base"}):
            yield DRAWING, line, f"{module} need not name {other}: nothing there includes it, or every module may"
        for other in sorted(drawn & found.keys()):
            if order.get(other, -1) > order[module] and not tree.excuse(module, other):
                yield DRAWING, line, (f"{module} includes {other}, a row below it, so that the two may form a cycle:"
                                      " put the code where it belongs, or the rows in order")
    for module in rows.keys() - modules.keys():
        yield DRAWING, rows[module][0], f"there is no module {module}: remove the row"


# Where the files of a folder form no cycle. The rest of trainer/ follows when it is cut anew.
ACYCLIC = ("cli/", "common/", "coordinator/", "proto/", "worker/", "trainer/core/", "trainer/fsdp/", "trainer/inputs/",
           "trainer/plan/", "trainer/report/", "trainer/state/", "trainer/supervise/", "trainer/train/", "trainer/verbs/")


def cycles(arrows, what):
    """A violation for each cycle of {node: {node: (file, line)}}, at the arrow that closes it."""
    done = set()

    def visit(node, path):
        if node in path:
            yield (*arrows[path[-1]][node], f"{what} form a cycle: " + ", ".join(
                os.path.basename(each) for each in [*path[path.index(node):], node]))
        elif node in arrows and node not in done:
            for other in sorted(arrows[node].keys() - {node}):
                yield from visit(other, [*path, node])
            done.add(node)

    for node in sorted(arrows):
        yield from visit(node, [])


def check_file_cycles(tree):
    """A source and its header are one; those of a folder include each other in one direction."""
    arrows = {}  # name without suffix: {included one: (file, line)}
    for name in tree.having((".h", ".cc")):
        if name.startswith(ACYCLIC) and not is_test(name):
            found = arrows.setdefault(os.path.splitext(name)[0], {})
            for number, header in includes(tree, name):
                other = os.path.splitext(header)[0]
                if os.path.dirname(other) == os.path.dirname(name):
                    found.setdefault(other, (name, number))
    yield from cycles(arrows, "includes")


def check_class_cycles(tree):
    """The files of a class call each other in one direction; a member that several of them define is passed over."""
    members = {}  # (folder, class): {file: {its members}}
    texts = {}
    for name in tree.having((".cc",)):
        if name.startswith(ACYCLIC) and not is_test(name):
            texts[name] = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), "\n".join(tree.lines(name)))
            for match in re.finditer(r"^\w[^;{}()=\n]*?\b(\w+)::(~?\w+)\(", texts[name], re.M):
                files = members.setdefault((os.path.dirname(name), match.group(1)), {})
                files.setdefault(name, set()).add(match.group(2))
    for (_, owner), files in sorted(members.items()):
        arrows = {}
        for name in files:
            for other in files.keys() - {name}:
                for member in sorted(files[other] - set().union(*(files[f] for f in files.keys() - {other}))):
                    if call := re.search(rf"(?<![\w.:>~]){member}\(", texts[name]):
                        line = texts[name].count("\n", 0, call.start()) + 1
                        arrows.setdefault(name, {}).setdefault(other, (name, line))
        yield from cycles(arrows, f"calls of {owner}'s members")


def check_testing(tree):
    """What only tests include lies in a folder testing/, which no product file includes."""
    users = {}
    for name in tree.having(CODE):
        for number, header in includes(tree, name):
            users.setdefault(header, []).append(name)
            if not is_test(name) and is_test(header):
                yield name, number, f"<{header}> is for tests: a product file may not include it"
    for name in tree.having(CODE):
        others = [user for user in users.get(name, ()) if os.path.splitext(user)[0] != os.path.splitext(name)[0]]
        if is_test(name):
            continue
        if re.search(r"_(for_test|testing)\.", name) or others and all(map(is_test, others)):
            yield name, 1, f"only tests need it: move it to {os.path.dirname(name)}{TESTING}"


def check_own_header_first(tree):
    """A source that includes its header first proves that the header stands alone."""
    known = set(tree.files)
    for name in tree.having((".cc",)):
        header = re.sub(r"(_test)?\.cc$", ".h", name)
        if header in known:
            first = next(includes(tree, name), None)
            if first and first[1] != header:
                yield name, first[0], f'include "{header}" first, so that it is proved to stand alone'


def check_headers(tree):
    for name in tree.having((".h",)):
        if "#pragma once" not in tree.lines(name):
            yield name, 1, "a header needs #pragma once"


def check_lengths(tree):
    for name in tree.having(CODE):
        if len(tree.lines(name)) > FILE_LINES:
            yield name, FILE_LINES + 1, f"{len(tree.lines(name))} lines, {FILE_LINES} allowed: split it by subject"


NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/'                                        # comments
    r'|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'              # strings
    r"|(?<!\w)'(?:\\.|[^'\\\n])+'"                              # characters, but not 1'000
    r'|^[ \t]*\#(?:\\\n|[^\n])*', re.S | re.M)                   # preprocessor lines
SCOPE = re.compile(r"(?:inline\s+)?(?:namespace|extern)\b[^()]*|.*\b(?:class|struct|union|enum)\b[^()=]*", re.S)


def functions(text):
    """(name, first line, last line) of each function of a C++ text, those inside of classes too, lambdas not."""
    text = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    blocks, start, line = [], 0, 1
    for match in re.finditer(r"[{};\n]", text):
        character, at = match.group(0), match.start()
        if character == "\n":
            line += 1
            continue
        if character == "{":
            head = text[start:at]
            first, scope, name = line - head.lstrip().count("\n"), bool(SCOPE.fullmatch(head.strip())), None
            if not scope and all(block[0] for block in blocks):
                if 0 < head.count("(") == head.count(")") and not head.rstrip().endswith(("=", ",")):
                    name = re.split(r"[\s*&]", head.split("(")[0].strip())[-1]
            blocks.append((scope, name, first, start))
        elif character == "}" and blocks:
            _, name, first, began = blocks.pop()
            if name and re.match(r"\s*[,{]", text[at + 1:at + 200]):  # a member's initializer: the body follows
                start = began
                continue
            if name:
                yield name, first, line
        start = at + 1


def check_functions(tree):
    for name in tree.having(CODE):
        for function, first, last in functions("\n".join(tree.lines(name))):
            if last - first + 1 > FUNCTION_LINES and not tree.excuse(name, function):
                yield name, first, (f"{function} has {last - first + 1} lines, {FUNCTION_LINES} allowed:"
                                    f" split it, or give the reason in {EXCEPTIONS}")


CLASS = re.compile(r"(?:template ?<.*> ?)?(?:class|struct) (\w+)(?: final)?(?: ?:[^:].*)?")
# A declaration that is no member function: a friend, an alias, a value, a function that the compiler writes.
NO_MEMBER = re.compile(r"(?:friend|using|typedef|static_assert)\b|(?![^(]*\boperator\b)[^(]*="
                       r"|[^(]*(?:std::function<|\(\*)|.*= (?:default|delete)$")


def class_bodies(text):
    """(name, member functions, first line, last line) of each class of a C++ text; one inside of A is A::B."""
    text = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    blocks, start, line = [], 0, 1  # [name of the class or None, its member functions, first line]
    for match in re.finditer(r"[{};\n]", text):
        character, at = match.group(0), match.start()
        if character == "\n":
            line += 1
            continue
        head = re.sub(r"\b(?:public|private|protected):", "", text[start:at]).lstrip()
        flat = re.sub(r"\s+", " ", head).strip()
        if character != "}" and blocks and blocks[-1][0] and "(" in flat and not NO_MEMBER.match(
                re.sub(r"^template ?<[^()]*?> ?(?=\w)", "", flat)):
            blocks[-1][1] += 1
        if character == "{":
            found = CLASS.fullmatch(flat) if "(" not in flat or flat.startswith("template") else None
            outer = blocks[-1][0] + "::" if found and blocks and blocks[-1][0] else ""
            blocks.append([found and outer + found.group(1), 0, line - head.count("\n")])
        elif character == "}" and blocks:
            name, members, first = blocks.pop()
            if name:
                yield name, members, first, line
        start = at + 1


def product_classes(tree):
    """[(file, line, class, member functions, lines)]: its body, and its functions in all files of the folder."""
    found = {}
    names = [name for name in tree.having(CODE) if name.split("/", 1)[0] in PRODUCT and not is_test(name)]
    for name in names:
        for owner, members, first, last in class_bodies("\n".join(tree.lines(name))):
            size = found.setdefault((os.path.dirname(name), owner), [name, first, 0, 0])
            size[2:] = size[2] + members, size[3] + last - first + 1
    for name in names:
        for function, first, last in functions("\n".join(tree.lines(name))):
            size = found.get((os.path.dirname(name), re.sub(r"<[^<>]*>", "", function).rpartition("::")[0]))
            if size:
                size[3] += last - first + 1
    return [(name, line, owner, members, lines) for (_, owner), (name, line, members, lines) in found.items()]


def wide_structs(tree):
    """The structs of the files RECORDS that have three members or more."""
    wide = set()
    for name in set(RECORDS) & set(tree.files):
        text = "\n".join(map(without_comment, tree.lines(name)))
        for struct in re.finditer(r"^struct (\w+)[^;{]*\{\n(.*?)^\}", text, re.M | re.S):
            members = re.findall(r"^  (?!using |static |friend |enum |struct )[\w:<>,* ]+ \w+(?: = [^\n]*|\{.*\})?;",
                                 struct.group(2), re.M)
            if len(members) >= 3:
                wide.add(struct.group(1))
    return wide


def check_initializers(tree):
    """Values that cross a boundary are filled by name, so that a new member shifts no other."""
    wide = wide_structs(tree)
    for name in tree.having((".cc", ".h")):
        text = NO_CODE.sub(lambda match: re.sub(r"[^\n]", '"', match.group(0)) if match.group(0)[0] == '"'
                           else re.sub(r"[^\n]", " ", match.group(0)), "\n".join(tree.lines(name)))
        for match in re.finditer(r"(?<![\w:])(?<!struct )(?<!class )(\w+)(?: \w+)?\{(?!\s*[.}])", text):
            if match.group(1) in wide:
                yield name, text.count("\n", 0, match.start()) + 1, f"fill {match.group(1)} by names: .member = value"


def check_classes(tree):
    for name, line, owner, members, lines in product_classes(tree):
        if (members > CLASS_FUNCTIONS or lines > CLASS_LINES) and not tree.excuse(name, owner):
            yield name, line, (f"{owner} has {members} member functions and {lines} lines, {CLASS_FUNCTIONS} and"
                               f" {CLASS_LINES} allowed: make a class of a part of its state")


def check_calls(tree):
    for name in tree.having(CODE):
        for number, line in enumerate(tree.lines(name), 1):
            for pattern, places, instead in BANNED_CALLS:
                match = re.search(pattern, without_comment(line))
                if match and not allowed(name, places):
                    yield name, number, f"'{match.group(0).strip()}' is banned here: {instead}"


def check_kernels(tree):
    for name in tree.having((".cu",)):
        for number, line in enumerate(tree.lines(name), 1):
            if re.match(r"namespace\s*\{", line):
                yield name, number, ("nvcc names what an anonymous namespace has by the absolute path of its file, so two builds differ:"
                                     " inline namespace FILE_kernels")


def check_words(tree):
    for name in tree.having(TEXT):
        for number, line in enumerate(tree.lines(name), 1):
            if NOTES.search(line):
                yield name, number, "leftover note: do it, or write it down where work is planned"
            if MACHINE_PATHS.search(line):
                yield name, number, "a path of one machine"
            if REGISTRY_HOSTS.search(line) and name not in REGISTRY_CLIENTS:
                yield name, number, "name of a package registry: use the ordinary clients"


def check_prose(tree):
    """Plain technical English in the documentation and in comments; ADRs and released changes stay as they were."""
    for name in tree.having(tuple(COMMENTS)):
        suffix, sections = os.path.splitext(name)[1], 0
        if name.startswith("docs/adr/") or suffix != ".md" and not name.startswith(PROSE_FOLDERS):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            sections += name == "CHANGELOG.md" and line.startswith("## ")
            if sections > 1:
                break
            comment = COMMENTS[suffix].search(line)
            if comment and (match := PROSE.search(comment.group(1))):
                yield name, number, (f"'{match.group(0)}': begin with the subject, name the role that is meant, and let"
                                     " programs report and receive")


def check_test_prose(tree):
    """The same in names of tests and in what they print when they fail."""
    for name in tree.having((".cc", ".h")):
        if not name.startswith(PROSE_TESTS) or not is_test(name):
            continue
        text = "\n".join(tree.lines(name))
        found = [*((place, NAME_PROSE.search(place.group(1))) for place in TEST_NAME.finditer(text)),
                 *((place, PROSE.search(place.group(1))) for place in TEST_TEXT.finditer(text))]
        for place, match in found:
            if match:
                yield name, text.count("\n", 0, place.start()) + 1, (
                    f"'{match.group(0).strip()}' in '{place.group(1)}': begin with the subject, name the role that is"
                    " meant, and let programs report and receive")


def check_renamed(tree):
    """Names that the glossary has replaced do not come back."""
    rules = [rule for rules in rename.read_rules().values() for rule in rules]
    for name in tree.having(rename.TEXT):
        if rename.left_alone(name):
            continue
        text = "\n".join(tree.lines(name))
        for rule in rules:
            if rule.core not in text or not rule.holds_in(name):
                continue
            for match in rule.pattern.finditer(text):
                if rule.replaced(name, text, match) != match[0]:
                    yield (name, text.count("\n", 0, match.start()) + 1,
                           f"'{match[0]}' is '{rule.replaced(name, text, match)}' in docs/glossary.md")


def check_built(tree):
    """Every source is named by a CMake file: of its folder or one above, or by its whole path.

    FOLDER/*.cc in one above names the folder's sources, FOLDER/*_test.cc its tests.
    """
    cmake = {f: "\n".join(tree.lines(f)) for f in tree.files
             if f.endswith(("CMakeLists.txt", ".cmake"))}
    for name in tree.having((".cc", ".proto")):
        base, suffix = os.path.splitext(os.path.basename(name))
        ending = r"(\.proto)?" if suffix == ".proto" else r"\.cc"  # protos are listed without it
        word = re.compile(r"(?<![\w-])" + re.escape(base) + ending + r"(?![\w-])")
        above = [str(p) for p in pathlib.PurePath(name).parents]

        def names(file, text):
            folder = os.path.dirname(file) or "."
            kind = "/*_test" if base.endswith("_test") else "/*"
            pattern = os.path.relpath(os.path.dirname(name) or ".", folder) + kind + suffix
            return name in text or folder in above and (word.search(text) or pattern in text)

        if not any(names(f, text) for f, text in cmake.items()):
            yield name, 1, "no CMakeLists.txt names it, so nothing builds or runs it"


def names_of(head):
    """(name, kind, detail) of a declaration at a namespace's scope, where text shows nearly as much as a parser."""
    head = re.sub(r"^template ?<[^()]*?> ?(?=\w)", "", head)
    if match := re.fullmatch(r"(?:struct|class|union|enum(?: class)?) (\w+)[^(]*", head):
        return match.group(1), "type", ""
    if match := re.fullmatch(r"(?:using|namespace) (\w+) = (.*)", head):
        return match.group(1), "alias", match.group(2)
    if re.match(r"(?:using|static_assert)\b", head):
        return None
    if match := re.fullmatch(r"[^=({]*?([A-Za-z_]\w*)(?:\[[^]]*\])* ?(?:=.*)?", head):
        return match.group(1), "variable", ""
    if match := re.match(r"[^=(]*?(?<![:~\w])(\w+) ?\((.*)\)", head):
        types = [re.sub(r" ?=.*", "", parameter).strip() for parameter in match.group(2).split(",")]
        return match.group(1), "function", ",".join(re.sub(r"[ &*]\w+$", "", each) for each in types)
    return None


def anonymous_names(text):
    """What the anonymous namespaces of a source declare, each as names_of() has it."""
    text = NO_CODE.sub(" ", text)
    scopes, start, found = [], 0, set()  # of each open block: a namespace's name, or None for any other
    for match in re.finditer(r"[{};]", text):
        head = " ".join(text[start:match.start()].split())
        if match.group(0) != "}" and head and "" in scopes and None not in scopes:
            found.add(names_of(head))
        if match.group(0) == "{":
            namespace = re.fullmatch(r"(?:inline )?namespace ?([\w:]*)", head)
            scopes.append(namespace.group(1) if namespace else None)
        elif match.group(0) == "}" and scopes:
            scopes.pop()
        start = match.end()
    return found - {None}


def expanded(tree, file, text, sources):
    """Sources of a call, with what set() and file(GLOB) of the same CMake file put into its variables."""
    folder = os.path.dirname(file)
    for source in sources:
        variable = re.fullmatch(r"\$\{(\w+)\}", source)
        if not variable:
            yield source
            continue
        for call in re.finditer(rf"\b(set|file)\((?:GLOB )?{variable.group(1)}\s([^)]*)\)", text):
            for word in call.group(2).split():
                if call.group(1) == "set":
                    yield word
                else:
                    yield from (os.path.relpath(name, folder) for name in tree.files
                                if name.endswith("_test.cc") == word.endswith("_test.cc")
                                and fnmatch.fnmatch(name, os.path.join(folder, word)))


def check_unity(tree):
    """Sources of a library are compiled in batches, where they share one anonymous namespace."""
    for file in (f for f in tree.files if f.endswith(("CMakeLists.txt", ".cmake"))):
        text = re.sub(r"#.*", "", "\n".join(tree.lines(file)))
        for call in re.finditer(r"^ *muster_(?:library|program|test)\(([^)]*)\)", text, re.M):
            words, key, lists = call.group(1).split(), "", {}
            for word in words:
                if word.isupper() and "_" not in word.strip("_"):
                    key = word
                lists.setdefault(key, []).append(word)
            if re.search(rf"set_target_properties\([^)]*\b{re.escape(words[0])}\b[^)]*UNITY_BUILD OFF", text):
                continue
            line = text.count("\n", 0, call.start()) + 1
            alone = set(expanded(tree, file, text, lists.get("ALONE", [])[1:]))
            sources = list(expanded(tree, file, text, lists.get("SOURCES", [])[1:]))
            for stale in sorted(alone - set(sources)):
                yield file, line, f"{stale} after ALONE is no source of {words[0]}: remove it"
            seen = {}
            for source in sources:
                path = os.path.normpath(os.path.join(os.path.dirname(file), source))
                if source in alone or path not in tree.files:
                    continue
                for name, kind, detail in sorted(anonymous_names("\n".join(tree.lines(path)))):
                    for other, other_kind, other_detail in seen.get(name, ()):
                        overloads = kind == other_kind == "function" and detail != other_detail
                        same = kind == other_kind == "alias" and detail == other_detail
                        if not overloads and not same and other != source:
                            yield file, line, (f"{other} and {source} both have a '{name}' of their own: define it once,"
                                               f" or put one of them after ALONE of {words[0]}")
                    seen.setdefault(name, []).append((source, kind, detail))


def check_changelog(tree):
    name = "CHANGELOG.md"
    if name not in tree.files:
        yield name, 1, "is missing"
        return
    lines = tree.lines(name)
    if not lines or lines[0] != "# Changelog":
        yield name, 1, "begins with '# Changelog'"
    versions = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("## ")]
    if not versions or versions[0][1] != "## [Unreleased]":
        yield name, versions[0][0] if versions else 1, "the first section is '## [Unreleased]'"
    for number, line in versions[1:]:
        if not re.fullmatch(r"## \[\d+\.\d+\.\d+(-[a-z0-9.]+)?\] - \d{4}-\d{2}-\d{2}", line):
            yield name, number, "a version reads '## [1.2.3] - 2026-01-31'"
    for number, line in enumerate(lines, 1):
        if line.startswith("### ") and line[4:] not in CHANGE_KINDS:
            yield name, number, f"'{line[4:]}' is none of {', '.join(CHANGE_KINDS)}"


def written_words(tree, name):
    """The words of a page that were written by hand: outside of fenced code and of generated sections."""
    text = FENCED.sub("", GENERATED.sub("", "\n".join(tree.lines(name))))
    return sum(1 for word in text.split() if re.search(r"\w", word))


def check_documentation(tree):
    """Pages are read whole; docs/adr, docs/measurements and docs/reference are records or generated."""
    words = {name: written_words(tree, name) for name in tree.files if name == "README.md" or fnmatch.fnmatch(name, "docs/*.md")
             and name.count("/") == 1}
    if (total := sum(words.values())) > DOCUMENTATION_WORDS:
        longest = ", ".join(f"{name} {words[name]:,}" for name in sorted(words, key=words.get, reverse=True)[:5])
        yield "README.md", 1, (f"{total:,} words in README.md and docs/*.md, {DOCUMENTATION_WORDS:,} allowed: shorten what was written"
                               f" by hand, or generate it ({longest})")


def check_format(tree):
    program, files = shutil.which("clang-format"), tree.having(CODE)
    if not program or not files or not (tree.root / ".clang-format").exists():
        return
    found = subprocess.run([program, "--dry-run", "--Werror", *files], cwd=tree.root,
                           capture_output=True, text=True, check=False)
    for match in re.finditer(r"^(\S+?):(\d+):\d+: error", found.stderr, re.M):
        yield match.group(1), int(match.group(2)), "run clang-format on it"


def check_exceptions(tree):
    """Runs last, when it is known which exceptions are of use."""
    if EXCEPTIONS not in tree.files:
        return
    for number, line in enumerate(tree.lines(EXCEPTIONS), 1):
        if line and not line.startswith("#") and number not in tree.exceptions.values():
            yield EXCEPTIONS, number, "an exception reads 'WHERE WHAT: REASON'"
    if len(tree.exceptions) > MAX_EXCEPTIONS:
        yield EXCEPTIONS, 1, f"{len(tree.exceptions)} exceptions, {MAX_EXCEPTIONS} allowed: mend one"
    for exception, number in tree.exceptions.items():
        if exception not in tree.excused:
            yield EXCEPTIONS, number, f"'{exception}' needs no exception, or is not there: remove the line"


def check_root_program(tree):
    sources = [name for name in tree.having(CODE) if name.startswith("worker/launcher/")
               and not product_lines.TESTS.search(name) and not name.startswith("worker/launcher/client.")]
    total = sum(product_lines.lines("\n".join(tree.lines(name))) for name in sources)
    if total > ROOT_LINES:
        yield min(sources), 1, f"muster-launcher has {total} lines that run as root, {ROOT_LINES} allowed: what need not be root's goes elsewhere"


RULES = {
    "include": check_includes,
    "modules": check_modules,
    "cycle": check_file_cycles,
    "class-cycle": check_class_cycles,
    "testing": check_testing,
    "own-header-first": check_own_header_first,
    "header": check_headers,
    "length": check_lengths,
    "function": check_functions,
    "class": check_classes,
    "initializer": check_initializers,
    "banned-call": check_calls,
    "kernel": check_kernels,
    "words": check_words,
    "prose": check_prose,
    "test-prose": check_test_prose,
    "renamed": check_renamed,
    "not-built": check_built,
    "unity": check_unity,
    "changelog": check_changelog,
    "documentation": check_documentation,
    "root-program": check_root_program,
    "format": check_format,
    "exception": check_exceptions,
}


def lint(root):
    tree = Tree(root)
    return [(name, line, rule, message)
            for rule, check in RULES.items() for name, line, message in check(tree)]


def worst(root):
    """What is nearest to its limit, ten lines of each kind."""
    tree = Tree(root)
    classes = product_classes(tree)
    sizes = [(last - first + 1, f"{name}:{first}: {function}") for name in tree.having(CODE)
             for function, first, last in functions("\n".join(tree.lines(name)))]
    for what, unit, rows in (
            ("classes", "member functions", [(members, f"{name}:{line}: {c}") for name, line, c, members, _ in classes]),
            ("classes", "lines", [(lines, f"{name}:{line}: {c}") for name, line, c, _, lines in classes]),
            ("functions", "lines", sizes)):
        yield f"{what} by {unit}"
        yield from (f"{size:6} {where}" for size, where in sorted(rows, reverse=True)[:10])


def main(arguments):
    if len(arguments) > 2 or any(argument.startswith("-") for argument in arguments if argument != "--worst"):
        print(__doc__, file=sys.stderr)
        return 2
    roots = [argument for argument in arguments if argument != "--worst"]
    root = roots[0] if roots else pathlib.Path(__file__).resolve().parents[2]
    if "--worst" in arguments:
        print("\n".join(worst(root)))
        return 0
    found = lint(root)
    for name, line, rule, message in found:
        print(f"{name}:{line}: {rule}: {message}")
    print(f"{len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
