// Expressions by themselves; testdata/snippets.golden.jsonl has what Python gives for many more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/chat/jinja/testing/render.h"

namespace muster::jinja {
namespace {

using ::testing::HasSubstr;

// The text with what came from the input in brackets.
std::string Marked(const std::string& source, const std::string& variables) {
  const auto text = Rendered(source, InputOf(variables, {.mark = kInput}));
  if (!text.ok()) return text.status().message();
  std::string out;
  bool within = false;
  for (std::size_t i = 0; i <= text->size(); ++i) {
    const bool input = i < text->size() && (text->MarkAt(i) & kInput) != 0;
    if (input != within) out += input ? "[" : "]";
    within = input;
    if (i < text->size()) out += text->bytes()[i];
  }
  return out;
}

TEST(JinjaExpressionTest, BindsAsJinjaDoes) {
  EXPECT_EQ(TextOf("{{ 1 + 2 * 3 }}{{ 1 ~ 2 * 3 }}{{ (1 ~ 2)|int + 3 }}"), "71615");
  EXPECT_EQ(TextOf("{{ -2 ** 2 }}"), "4");
  EXPECT_EQ(TextOf("{{ 2 ** 3 ** 2 }}"), "64");
  EXPECT_EQ(TextOf("{{ -1|abs }}"), "1");
  EXPECT_EQ(TextOf("{{ not 1 in [2] and 3 }}"), "3");
  EXPECT_EQ(TextOf("{{ 'a' if x is not defined or y else 'b' }}"), "a");
}

TEST(JinjaExpressionTest, CountsCharactersNotBytes) {
  const char* variables = R"({"u": "äö😀x"})";
  EXPECT_EQ(TextOf("{{ u|length }}{{ u[2] }}{{ u[-1] }}{{ u[::-1] }}", variables), "4😀xx😀öä");
  EXPECT_EQ(TextOf("{{ u.find('x') }}", variables), "3");
}

TEST(JinjaExpressionTest, MethodsComeBeforeKeysWithADotAndAfterThemWithASubscript) {
  const char* variables = R"({"d": {"items": 5, "x": 1}})";
  EXPECT_EQ(TextOf("{{ d['items'] }}", variables), "5");
  EXPECT_EQ(TextOf("{{ d.items()|length }}", variables), "2");
}

TEST(JinjaExpressionTest, ErrorsNameTheLineAndTheValue) {
  EXPECT_EQ(TextOf("a\n{{ m.x }}"), "t.jinja:2: 'm' is undefined");
  EXPECT_EQ(TextOf("{% if true %}\n\n{{ d.q.z }}{% endif %}", R"({"d": {}})"),
            "t.jinja:3: the dict has no 'q'");
  EXPECT_EQ(TextOf("{{ 'a' + 1 }}"), "t.jinja:1: unsupported operand types for +: str and int");
  EXPECT_EQ(TextOf("{{ raise_exception('no ' ~ 1) }}"), "t.jinja:1: the template refuses it: no 1");
  EXPECT_EQ(TextOf("{{ 9223372036854775807 + 1 }}"),
            "t.jinja:1: an integer does not fit into 64 bits");
}

TEST(JinjaExpressionTest, NothingChangesAValue) {
  EXPECT_THAT(TextOf("{{ l.append(1) }}", R"({"l": []})"),
              HasSubstr("the method append of a list is not supported"));
  EXPECT_THAT(TextOf("{{ d.pop('x') }}", R"({"d": {}})"), HasSubstr("the method pop of a dict"));
  EXPECT_THAT(TextOf("{{ 'x'.format() }}"), HasSubstr("the method format of a str"));
}

TEST(JinjaExpressionTest, WhatCameFromTheInputStaysKnown) {
  const char* variables = R"({"c": " Ab,cD ", "l": ["x", "y"], "d": {"k": "v\n"}})";
  EXPECT_EQ(Marked("<{{ c }}>", variables), "<[ Ab,cD ]>");
  EXPECT_EQ(Marked("{{ '<' + c|trim ~ '>' }}", variables), "<[Ab,cD]>");
  EXPECT_EQ(Marked("{{ c.strip().split(',')[-1].upper() + 'c' }}", variables), "[CD]c");
  EXPECT_EQ(Marked("{{ l|join(', ') }}", variables), "[x], [y]");
  EXPECT_EQ(Marked("{{ c.replace('b', 'zz')[1:5] }}", variables), "[A]zz[,]");
  EXPECT_EQ(Marked("{{ d|tojson }}", variables), R"({"[k]": "[v\n]"})");
  EXPECT_EQ(Marked("{{ l }}", variables), "['[x]', '[y]']");
  EXPECT_EQ(
      Marked("{% set x %}a{{ l[0] }}{% endset %}{{ x }}{% filter upper %}b{{ x }}{% endfilter %}",
             variables),
      "a[x]BA[X]");
  EXPECT_EQ(Marked("{{ 'x' if c else 'y' }}", variables), "x");
}

TEST(JinjaExpressionTest, ADateIsThereOnlyWhereATimeIsGiven) {
  EXPECT_EQ(TextOf("{{ strftime_now is defined }}"), "False");
  EXPECT_THAT(
      TextOf("{{ strftime_now('%Y') }}"),
      ::testing::AllOf(HasSubstr("must not depend on the day"), HasSubstr("data.chat_date")));
  RenderInput input;
  input.now = 1'000'000'000;
  const auto text = Rendered("{{ strftime_now('%Y') }}", input);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(text->bytes(), "2001");
}

}  // namespace
}  // namespace muster::jinja
