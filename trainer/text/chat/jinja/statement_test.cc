// Statements by themselves; testdata/snippets.golden.jsonl has what Python gives for many more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/chat/jinja/testing/render.h"

namespace muster::jinja {
namespace {

using ::testing::HasSubstr;

TEST(JinjaStatementTest, ALoopHasAScopeAndABranchHasNone) {
  EXPECT_EQ(TextOf("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}"),
            "21");
  EXPECT_EQ(TextOf("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
}

TEST(JinjaStatementTest, ANamespaceOutlivesTheLoop) {
  EXPECT_EQ(TextOf("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}"
                   "{% endfor %}{{ ns.n }}"),
            "3");
  EXPECT_THAT(TextOf("{% set n = namespace() %}{% set n.x = n %}"),
              HasSubstr("a namespace cannot hold a namespace"));
  EXPECT_THAT(TextOf("{% set n = namespace() %}{% set n.x = [{'a': 'b'.upper}] %}"),
              HasSubstr("a namespace cannot hold a function"));
  EXPECT_THAT(TextOf("{% set d.x = 1 %}", R"({"d": {}})"), HasSubstr("'d' is no namespace"));
}

TEST(JinjaStatementTest, MacrosSeeTheScopeThatTheyStandIn) {
  EXPECT_EQ(TextOf("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ g }}{% endmacro %}{% set g = 'g' %}"
                   "{{ m(1) }}{{ m(1, b=2) }}"),
            "11g12g");
  EXPECT_THAT(TextOf("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
              HasSubstr("1 arguments at most"));
  EXPECT_THAT(TextOf("{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}"),
              HasSubstr("no caller defined"));
}

// testdata/snippets.golden.jsonl has what Python gives; here is what people read.
TEST(JinjaStatementTest, ArgumentsAreUnpackedFromListsAndDicts) {
  EXPECT_EQ(TextOf("{% macro m(a, b='-') %}{{ a }}{{ b }};{% endmacro %}"
                   "{{ m(*[1, 2]) }}{{ m(3, **{'b': 4}) }}{{ m(*'x', b=5) }}"),
            "12;34;x5;");
  const struct {
    const char* call;
    const char* message;
  } cases[] = {
      {"m(*1)", "int"},
      {"m(**[1])", "an argument after ** needs a dict, not a list"},
      {"m(**x)", "'x' is undefined"},
      {"m(**{1: 2})", "the keys of an argument after ** are names, not a int"},
      {"m(a=1, **{'a': 2})", "the argument 'a' is given twice"},
      {"m(**{'z': 2})", "the macro 'm' has no parameter 'z'"},
      {"m(*[1, 2])", "the macro 'm' takes 1 arguments at most"},
      {"m(*[1], 2)", "an argument without a name follows a named one or one with *"},
      {"m(*[1], *[2])", "an argument with * is not expected here"},
      {"m(**{}, a=1)", "a named argument follows one with **"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(TextOf("{% macro m(a) %}{{ a }}{% endmacro %}{{ " + std::string(c.call) + " }}"),
                HasSubstr(c.message))
        << c.call;
  }
}

TEST(JinjaStatementTest, AMacroThatNamesThemTakesFurtherArguments) {
  EXPECT_EQ(TextOf("{% macro in(a, b='-') %}<{{ a }}{{ b }}>{% endmacro %}"
                   "{% macro out(f) %}{{ f(*varargs, **kwargs) }}{% endmacro %}"
                   "{{ out(in, 1) }}{{ out(in, 1, b=2) }}"),
            "<1-><12>");
  EXPECT_EQ(TextOf("[{{ varargs }}]"), "[]");
}

TEST(JinjaStatementTest, GenerationMarksItsText) {
  const auto text = Rendered("a{% generation %}b{{ 'c' }}{% endgeneration %}d");
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  ASSERT_EQ(text->bytes(), "abcd");
  EXPECT_EQ(text->MarkAt(0), kPlain);
  EXPECT_EQ(text->MarkAt(1), kTrained);
  EXPECT_EQ(text->MarkAt(2), kTrained);
  EXPECT_EQ(text->MarkAt(3), kPlain);
  EXPECT_TRUE(Template::Parse("{% generation %}{% endgeneration %}", "t")->has_generation());
  EXPECT_FALSE(Template::Parse("generation", "t")->has_generation());
}

TEST(JinjaStatementTest, WhatIsNotSupportedIsNamedWithItsLine) {
  const struct {
    const char* source;
    const char* message;
  } cases[] = {
      {"\n{% include 'x' %}", "t.jinja:2: the tag {% include %} is not supported here"},
      {"{% extends 'x' %}", "the tag {% extends %}"},
      {"{% import 'x' as y %}", "the tag {% import %}"},
      {"{% block x %}{% endblock %}", "the tag {% block %}"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops are not supported"},
      {"{{ x|urlencode }}", "the filter 'urlencode' is not supported"},
      {"{{ x is nosuch }}", "the test 'nosuch' is not supported"},
      {"{{ self.x() }}", "'self' is not supported"},
      {"{% if x %}", "{% endif %} is missing"},
      {"{% for x in y %}\n{% endif %}", "t.jinja:2: the tag {% endif %} is not supported here"},
      {"{% break %}", "{% break %} and {% continue %} belong into a loop"},
      {"{% for x in y %}{% set z %}{% break %}{% endset %}{% endfor %}", "belong into a loop"},
      {"{{ 1 2 }}", "expected '}}', got '2'"},
      {"{% set none = 1 %}", "nothing can be assigned to none"},
      {"{{ f(a=1, a=2) }}", "the argument 'a' is given twice"},
  };
  for (const auto& c : cases) EXPECT_THAT(TextOf(c.source), HasSubstr(c.message)) << c.source;
}

TEST(JinjaStatementTest, ABranchThatIsNotTakenMayNameAFilterThatIsMissing) {
  const std::string source =
      "{% if 'nosuch' is filter %}{{ x|nosuch }}{% elif x is nosuch %}{% else %}b{% endif %}";
  EXPECT_EQ(TextOf("{% if not 'nosuch' is filter %}a{% elif x is nosuch %}{% endif %}"), "a");
  EXPECT_THAT(TextOf(source), HasSubstr("t.jinja:1: the test 'nosuch' is not supported"));
  EXPECT_THAT(TextOf("{% if 1 %}{{ x|nosuch }}{% endif %}"), HasSubstr("the filter 'nosuch'"));
}

}  // namespace
}  // namespace muster::jinja
