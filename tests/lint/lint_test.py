"""The lint finds what it is there for: each rule against a small tree with one planted violation."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n"
# Rules that name words would otherwise find them here.
NOTE = "TO" + "DO"
MACHINE_PATH = "/wo" + "rk/tree"
HOST = "py" + "pi.org"


class LintTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        self.put("CHANGELOG.md", CHANGELOG)
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc)\n")
        self.put("common/base/a.h", "#pragma once\nint A();\n")
        self.put("common/base/a.cc", '#include "common/base/a.h"\n\nint A() { return 1; }\n')

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, name, line, rule):
        found = [(n, l, r) for n, l, r, _ in lint.lint(self.root)]
        self.assertEqual(found, [(name, line, rule)])

    def plant(self, line):
        """Puts a line where the sound tree has a body."""
        self.put("common/base/a.cc", f'#include "common/base/a.h"\n{line}\n')

    def test_a_sound_tree_passes(self):
        self.assertEqual(lint.lint(self.root), [])

    def test_a_name_that_the_glossary_has_replaced(self):
        self.plant("int " + "kept" + "_ranks = 1;")
        self.expect("common/base/a.cc", 2, "renamed")

    def test_a_replaced_name_in_a_comment(self):
        self.plant("// As of old: " + "Door" + "keeper.")
        self.expect("common/base/a.cc", 2, "renamed")

    def test_grpc_outside_of_the_service_layer(self):
        self.plant("#include <grpcpp/grpcpp.h>")
        self.expect("common/base/a.cc", 2, "include")

    def test_generated_messages_outside_of_the_service_layer(self):
        self.plant('#include "muster/v1/common.pb.h"')
        self.expect("common/base/a.cc", 2, "include")

    def test_torch_in_the_control_plane(self):
        self.plant("#include <ATen/ATen.h>")
        self.expect("common/base/a.cc", 2, "include")

    def test_the_template_engine_outside_of_chat(self):
        self.put("trainer/data/b.h", '#pragma once\n#include "trainer/text/chat/jinja/value.h"\n')
        self.expect("trainer/data/b.h", 2, "include")

    def test_yaml_outside_of_the_job_parser(self):
        self.plant("#include <yaml-cpp/yaml.h>")
        self.expect("common/base/a.cc", 2, "include")

    def test_asio_in_a_place_that_should_use_the_event_loop(self):
        self.plant("#include <boost/asio/io_context.hpp>")
        self.expect("common/base/a.cc", 2, "include")

    def test_modules_of_a_folder_include_each_other(self):
        self.put("coordinator/x/a.h", '#pragma once\n#include "coordinator/x/b.h"\n')
        self.put("coordinator/x/b.h", "#pragma once\n")
        self.put("coordinator/x/b.cc", '#include "coordinator/x/b.h"\n\n#include "coordinator/x/c.h"\n')
        self.put("coordinator/x/c.h", '#pragma once\n#include "coordinator/x/a.h"\n')
        self.put("coordinator/x/CMakeLists.txt", "b.cc\n")
        self.expect("coordinator/x/c.h", 2, "cycle")

    def test_files_of_a_class_call_each_other(self):
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc base/b.cc)\n")
        self.plant("void A::First(int n) {\n  Second(n);\n}\nvoid A::Both() {}")
        lower = "void A::Second(int n) {\n  other.First(n);\n  B::First(n);\n  // First(n)\n  Both();\n}\nvoid A::Both(int) {}\n"
        self.put("common/base/b.cc", lower)
        self.assertEqual(lint.lint(self.root), [])
        self.put("common/base/b.cc", lower + "void A::Third() { First(1); }\n")
        self.expect("common/base/b.cc", 8, "class-cycle")

    def put_modules(self, *rows):
        """The table of modules, its first row at line 5."""
        self.put(lint.DRAWING, "# A\n\n## Modules\n| module | includes |\n" + "".join(f"| {row} |\n" for row in rows)
                 + "## B\n| `no/row` | `at/all` |\n")

    def test_the_table_of_modules_is_what_they_include(self):
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc net/b.cc net/b_test.cc)\n")
        self.put("common/net/b.cc", '#include "common/base/a.h"\n#include "common/rpc/c.h"\n')
        self.put("common/net/b_test.cc", '#include "common/http/none.h"\n')
        self.put("common/rpc/c.h", '#pragma once\n#include "muster/v1/job.pb.h"\n')
        base, rpc, net = "`common/base` | ", "`common/rpc` | `proto`", "`common/net` | `common/rpc`"
        for rows, name, line in (((base, rpc, "`common/net` | "), "common/net/b.cc", 2),
                                 ((base, rpc, "`common/net` | `common/{base,rpc}`"), lint.DRAWING, 8),
                                 ((base, rpc, "`common/net` | `common/rpc`, `common/http`"), lint.DRAWING, 8),
                                 ((base, net, rpc), lint.DRAWING, 7),
                                 ((base, rpc), lint.DRAWING, 1),
                                 ((base, rpc, net, "`common/http` | "), lint.DRAWING, 9)):
            with self.subTest(rows):
                self.put_modules("`proto` | ", *rows)
                self.expect(name, line, "modules")
        self.put_modules("`proto` | ", base, net, rpc)
        self.put(lint.EXCEPTIONS, "common/net common/rpc: for now\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_support_of_tests_lies_in_testing(self):
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc base/b.cc base/a_test.cc)\n")
        self.put("common/base/b.cc", '#include "common/base/a.h"\n')
        for name in ("common/base/fake.h", "common/base/fake_for_test.h"):
            self.put(name, "#pragma once\n")
            self.put("common/base/a_test.cc", f'#include "common/base/a.h"\n\n#include "{name}"\n')
            self.expect(name, 1, "testing")
            os.remove(self.root / name)
        self.put("common/base/testing/fake.h", "#pragma once\n")
        self.put("common/base/a_test.cc", '#include "common/base/a.h"\n\n#include "common/base/testing/fake.h"\n')
        self.assertEqual(lint.lint(self.root), [])
        self.plant('\n#include "common/base/testing/fake.h"')
        self.expect("common/base/a.cc", 3, "testing")

    def test_programs_include_each_other(self):
        self.put("worker/CMakeLists.txt", "muster_library(w SOURCES w.cc)\n")
        self.put("worker/w.cc", '#include "coordinator/server.h"\n')
        self.expect("worker/w.cc", 1, "include")

    def test_common_includes_a_program(self):
        self.plant('#include "trainer/core/flat_layout.h"')
        self.expect("common/base/a.cc", 2, "include")

    def test_the_own_header_comes_first(self):
        self.put("common/base/a.cc", '#include <string>\n#include "common/base/a.h"\n')
        self.expect("common/base/a.cc", 1, "own-header-first")

    def test_a_message_is_filled_by_names(self):
        self.put("worker/guardian/protocol.h",
                 "#pragma once\nstruct Small {\n  int a;\n  int b;\n};\n"
                 "struct Wide {\n  int a = 0;\n  std::vector<int> b;\n  bool c{false};\n"
                 "  bool Any() const { return c; }\n};\n")
        self.plant("Small s{1, 2};\nWide a;\nWide b{};\nsend(Wide{.a = 1});\nstruct Wide {\n  int a;\n};\n// Wide{1}\n")
        self.assertEqual([v for v in lint.lint(self.root) if v[2] == "initializer"], [])
        self.plant("Wide w{1, {}};")
        self.expect("common/base/a.cc", 2, "initializer")
        self.plant("send(Wide{message});")
        self.expect("common/base/a.cc", 2, "initializer")

    def test_a_header_without_a_guard(self):
        self.put("common/base/a.h", "int A();\n")
        self.expect("common/base/a.h", 1, "header")

    def test_a_source_that_is_too_long(self):
        self.plant("\n" * 1000)
        self.expect("common/base/a.cc", 1001, "length")

    def test_a_header_that_is_too_long(self):
        self.put("common/base/a.h", "#pragma once\n" + "\n" * 1000)
        self.expect("common/base/a.h", 1001, "length")

    def plant_function(self, body_lines, head="int Long(int x)"):
        self.plant("namespace muster {\nclass A {\n" + head + " {\n" + "  x = 1'000; // }\n" * body_lines + "}\n};\n}")

    def test_a_function_that_is_too_long(self):
        self.plant_function(68)
        self.assertEqual(lint.lint(self.root), [])
        self.plant_function(69)
        self.expect("common/base/a.cc", 4, "function")

    def test_a_constructor_is_as_long_as_its_initializers_and_its_body(self):
        self.plant_function(67, "A(int x)\n  : a_{x},\n  b_(x)")
        self.expect("common/base/a.cc", 4, "function")

    def test_a_table_is_no_function(self):
        for table in ("constexpr int kTable[] = {\n" + "F(1),\n" * 90 + "};", "F(a, B({1}," + "\n{2}," * 90 + "));"):
            with self.subTest(table):
                self.plant(table)
                self.assertEqual(lint.lint(self.root), [])

    def test_a_long_function_may_be_excepted_with_a_reason(self):
        self.plant_function(69)
        self.put(lint.EXCEPTIONS, "# why\n\ncommon/base/a.cc Long: a table\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_an_exception_needs_a_reason_and_what_it_excepts(self):
        self.put(lint.EXCEPTIONS, "common/base/a.cc Long:\n")
        self.expect(lint.EXCEPTIONS, 1, "exception")
        self.put(lint.EXCEPTIONS, "common/base/a.cc Long: a table\n")
        self.expect(lint.EXCEPTIONS, 1, "exception")

    def test_exceptions_are_few(self):
        self.put(lint.EXCEPTIONS, "".join(f"a.cc F{n}: a table\n" for n in range(11)))
        self.assertIn((lint.EXCEPTIONS, 1, "exception"), [(n, l, r) for n, l, r, _ in lint.lint(self.root)])

    def plant_class(self, functions, lines, head="class A final : public B"):
        """`lines` of a member function, in a file beside the class's own."""
        members = "".join(f"  void F{n}(int x = {{}});\n" for n in range(functions - 2))
        members += "  A& operator+=(int x) { return *this; }\n  template <typename U = int>\n  void G(U);\n"
        no_members = ("  using G = void (*)();\n  A(const A&) = delete;\n"
                      "  friend bool operator==(const A&, const A&);\n"
                      "  std::function<void()> call_;\n  int x_ = F(1);\n  struct B { void F(); void G(); };\n")
        self.put("common/base/a.h", f"#pragma once\n\n{head} {{\n public:\n{members}{no_members}}};\n")
        self.put("common/base/b.cc", "".join(f"void A::F{n}(int) {{\n" + "  x_ = 1;\n" * 48 + "}\n"
                                             for n in range(lines // 50)))
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc base/b.cc)\n")

    def test_a_class_with_too_many_functions(self):
        for head in ("class A", "struct A", "template <typename T>\nclass A final : public B"):
            with self.subTest(head):
                self.plant_class(40, 0, head)
                self.assertEqual(lint.lint(self.root), [])
                self.plant_class(41, 0, head)
                self.expect("common/base/a.h", 3, "class")

    def test_a_class_with_too_many_lines_over_all_its_files(self):
        self.plant_class(12, 550)
        self.assertEqual(lint.lint(self.root), [])
        self.plant_class(12, 600)
        self.expect("common/base/a.h", 3, "class")

    def test_a_class_of_tests_may_be_large(self):
        self.plant_class(2, 0)
        self.put("common/base/testing/t.h", "#pragma once\nclass A {\n" + "  void F();\n" * 41 + "};\n")
        self.put("common/base/t_test.cc", '#include "common/base/testing/t.h"\n')
        self.put("common/CMakeLists.txt",
                 "muster_library(x SOURCES base/a.cc base/b.cc)\nmuster_test(base/t_test.cc)\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_a_large_class_may_be_excepted_with_a_reason(self):
        self.plant_class(41, 0)
        self.put(lint.EXCEPTIONS, "common/base/a.h A: one value\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_the_largest_are_listed(self):
        self.plant_class(5, 100)
        listed = list(lint.worst(self.root))
        self.assertEqual(listed[:3], ["classes by member functions",
                                      "     5 common/base/a.h:3: A", "     2 common/base/a.h:16: A::B"])
        self.assertIn("   115 common/base/a.h:3: A", listed)
        self.assertIn("    50 common/base/b.cc:1: A::F0", listed)

    def test_banned_calls(self):
        for call in ("std::this_thread::sleep_for(x);", "usleep(1);", "thread.detach();", "}).detach();",
                     "system(text);", "std::system(text);", 'popen("ls", "r");', "pid = fork();"):
            with self.subTest(call):
                self.plant(call)
                self.expect("common/base/a.cc", 2, "banned-call")

    def test_a_call_in_a_comment_or_of_another_name_is_no_violation(self):
        self.plant("// never sleep_for(x)\nfile.system(1);\ntensor.detach();\nFilesystem();")
        self.assertEqual(lint.lint(self.root), [])

    def test_a_kernel_in_an_anonymous_namespace_is_named_by_its_absolute_path(self):
        self.put("trainer/ops/cuda/a.cu", "// A kernel.\nnamespace muster {\nnamespace {\n}\n}\n")
        self.assertIn(("trainer/ops/cuda/a.cu", 3, "kernel"), [found[:3] for found in lint.lint(self.root)])

    def test_leftover_notes(self):
        self.plant(f"// {NOTE}: later")
        self.expect("common/base/a.cc", 2, "words")

    def test_paths_of_one_machine(self):
        self.plant(f'const char* kPath = "{MACHINE_PATH}";')
        self.expect("common/base/a.cc", 2, "words")

    def test_hosts_of_registries(self):
        self.put("README.md", f"See {HOST}\n")
        self.expect("README.md", 1, "words")

    def test_prose_of_comments_and_documentation(self):
        for text in ("A rank is told.", "So nobody waits.", "Of a gang the ranks.", "It ends. Of the rest: nothing."):
            with self.subTest(text):
                self.plant(f"int B();  // {text}")
                self.expect("common/base/a.cc", 2, "prose")
                self.plant("int B();")
                self.put("docs/x.md", f"# X\n\n- {text}\n")
                self.expect("docs/x.md", 3, "prose")
                os.remove(self.root / "docs/x.md")
        self.put("CHANGELOG.md", CHANGELOG + "- The worker is told.\n\n## [0.1.0] - 2026-01-01\n\n- It was told.\n")
        self.expect("CHANGELOG.md", 8, "prose")

    def test_prose_of_names_and_texts_of_tests(self):
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/a.cc base/a_test.cc)\n")
        for test in ("TEST(A, OfTwoTakesOne) {}", "TEST_F(A, TellsTheTime) {}", "TEST(A,\n     IsSeenByNobodyElse) {}",
                     'EXPECT_TRUE(a) << "nobody came";'):
            with self.subTest(test):
                self.put("common/base/a_test.cc", f"\n{test}\n")
                self.expect("common/base/a_test.cc", 2, "test-prose")
        self.put("common/base/a_test.cc", '\nTEST(A, OffersTellurium) { Say("nobody"); }\n')
        self.assertEqual(lint.lint(self.root), [])

    def test_prose_elsewhere_is_no_violation(self):
        self.plant('const bool told = Say("nobody");  // Out of the way: a part of the whole.')
        self.put("docs/adr/0001-x.md", "Somebody was told.\n")
        self.put("elsewhere/a.py", "# Somebody was told.\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_a_source_that_nothing_builds(self):
        self.put("common/base/forgotten_test.cc", "int main() {}\n")
        self.expect("common/base/forgotten_test.cc", 1, "not-built")

    def test_a_longer_name_does_not_count_as_naming_it(self):
        self.put("common/CMakeLists.txt", "muster_library(x SOURCES base/aa.cc base/a_test.cc)\n")
        self.expect("common/base/a.cc", 1, "not-built")

    def test_a_pattern_names_the_sources_of_its_folder_but_not_its_tests(self):
        self.put("common/CMakeLists.txt", "file(GLOB all base/*.cc)\nmuster_test(t SOURCES base/a_test.cc)\n")
        self.put("common/base/forgotten_test.cc", "int main() {}\n")
        self.expect("common/base/forgotten_test.cc", 1, "not-built")
        os.remove(self.root / "common/base/forgotten_test.cc")
        self.assertEqual(lint.lint(self.root), [])
        self.put("common/net/b.cc", "int b;\n")
        self.expect("common/net/b.cc", 1, "not-built")
    def put_batch(self, first, second, cmake="muster_library(x SOURCES base/a.cc base/b.cc)\n"):
        self.put("common/CMakeLists.txt", "# a library\n" + cmake)
        self.plant("namespace muster {\nnamespace {\n" + first + "\n}\nint A() { return 1; }\n}")
        self.put("common/base/b.cc", "namespace {\n" + second + "\n}  // namespace\n")

    def test_two_sources_of_a_batch_with_a_name_of_their_own(self):
        for first, second in (("constexpr int kN = F(3);", "constexpr Duration kN(4);"),
                              ("struct N { int a; };", "int N(int a) { return a; }"),
                              ("int F(const T& a, int b) {\n  if (a) {}\n  return b;\n}", "int F(const T& x, int y);"),
                              ("namespace n = a::b;", "namespace n = a::c;"),
                              ("template <typename T>\nvoid F(T a) {}", "template <typename T>\nvoid F(T b) {}")):
            with self.subTest(first):
                self.put_batch(first, second)
                self.expect("common/CMakeLists.txt", 2, "unity")

    def test_sources_that_a_variable_holds(self):
        for variable in ("set(v base/a.cc base/b.cc)", "file(GLOB v RELATIVE here base/*.cc)"):
            with self.subTest(variable):
                self.put_batch("int n;", "int n;", variable + "\nmuster_library(x SOURCES ${v})\n")
                self.assertIn(("common/CMakeLists.txt", 3, "unity"), [(n, l, r) for n, l, r, _ in lint.lint(self.root)])

    def test_what_two_sources_of_a_batch_may_both_have(self):
        for first, second in (("using J = a::json;\nusing b::c;", "using J = a::json;\nusing b::c;"),
                              ("void F(int a) {}", "void F(double a) {}"),
                              ("void F() {\n  int n = 1;\n}", "int n = 2;"),
                              ("// int n;", "int n = 2;")):
            with self.subTest(first):
                self.put_batch(first, second)
                self.assertEqual(lint.lint(self.root), [])

    def test_a_source_that_is_compiled_alone_may_have_any_name(self):
        self.put_batch("int n;", "int n;", "muster_library(x\n  SOURCES base/a.cc base/b.cc\n  ALONE base/b.cc)\n")
        self.assertEqual(lint.lint(self.root), [])

    def test_a_source_that_is_compiled_alone_is_there(self):
        self.put_batch("int n;", "int m;", "muster_library(x\n  SOURCES base/a.cc base/b.cc\n  ALONE base/c.cc)\n")
        self.expect("common/CMakeLists.txt", 2, "unity")

    def test_the_changelog_is_there(self):
        os.remove(self.root / "CHANGELOG.md")
        self.expect("CHANGELOG.md", 1, "changelog")

    def test_the_shape_of_the_changelog(self):
        for text, line in (("# Changes\n\n## [Unreleased]\n", 1), ("# Changelog\n", 1),
                           ("# Changelog\n\n## [0.1.0] - 2026-01-01\n", 3),
                           (CHANGELOG + "\n## 0.1\n", 9), (CHANGELOG + "\n### News\n", 9)):
            with self.subTest(text):
                self.put("CHANGELOG.md", text)
                self.expect("CHANGELOG.md", line, "changelog")

    @unittest.skipUnless(lint.shutil.which("clang-format"), "clang-format is not installed")
    def test_documentation_of_too_many_words(self):
        words = "word " * 22_500
        self.put("docs/a.md", words + "\n```\n" + words + "\n```\n| - |\n<!-- generated: x -->\n" + words + "<!-- end of generated -->\n")
        self.put("docs/adr/a.md", words)
        self.put("README.md", words)
        self.assertEqual(lint.lint(self.root), [])
        self.put("README.md", words + "more")
        self.expect("README.md", 1, "documentation")

    def test_a_program_that_is_root_of_too_many_lines(self):
        lines = "int a;\n// Comment.\n\n" * 300
        self.put("worker/CMakeLists.txt", "muster_library(y SOURCES launcher/b.cc launcher/c.cc launcher/client.cc)\n")
        for name in ("b", "c", "client"):
            self.put(f"worker/launcher/{name}.cc", lines)
        self.assertEqual(lint.lint(self.root), [])
        self.put("worker/launcher/b.cc", lines + "int b;\n")
        self.expect("worker/launcher/b.cc", 1, "root-program")

    def test_formatting(self):
        self.put(".clang-format", "BasedOnStyle: Google\n")
        self.plant("int   B( ) ;")
        self.assertIn(("common/base/a.cc", 2, "format"),
                      [(n, l, r) for n, l, r, _ in lint.lint(self.root)])


if __name__ == "__main__":
    unittest.main()
