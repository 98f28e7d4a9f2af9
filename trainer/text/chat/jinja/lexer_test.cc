#include "trainer/text/chat/jinja/lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/chat/jinja/error.h"

namespace muster::jinja {
namespace {

using ::testing::ElementsAre;

// The data between the tags, in a row.
std::vector<std::string> Data(const std::string& source) {
  std::vector<std::string> data;
  for (const Token& token : Tokenize(source))
    if (token.kind == TokenKind::kData) data.push_back(token.text);
  return data;
}

std::pair<std::string, int> Refusal(const std::string& source) {
  try {
    Tokenize(source);
  } catch (const Error& error) {
    return {error.message(), error.line()};
  }
  return {"", 0};
}

TEST(JinjaLexerTest, ReadsTheTokensOfAnExpression) {
  const auto tokens = Tokenize("{{ a1.b|c(12, 1.5e2, 'x\\n') // 2 }}");
  std::vector<std::string> texts;
  for (const Token& token : tokens) texts.push_back(token.text);
  EXPECT_THAT(texts, ElementsAre("", "a1", ".", "b", "|", "c", "(", "12", ",", "1.5e2", ",", "x\n",
                                 ")", "//", "2", "", ""));
  EXPECT_EQ(tokens[7].integer, 12);
  EXPECT_EQ(tokens[9].number, 150);
  EXPECT_EQ(tokens.back().kind, TokenKind::kEnd);
}

TEST(JinjaLexerTest, TrimsTheLineBreakAfterABlockAndTheIndentBeforeIt) {
  EXPECT_THAT(Data("a\n  {% x %}\n b"), ElementsAre("a\n", " b"));
  EXPECT_THAT(Data("  {% x %}  b"), ElementsAre("  b"));
  EXPECT_THAT(Data("a  {% x %}\nb"), ElementsAre("a  ", "b"));
  EXPECT_THAT(Data("a\n  {{ x }}\n b"), ElementsAre("a\n  ", "\n b"));
  EXPECT_THAT(Data("a\n  {# x #}\n b"), ElementsAre("a\n", " b"));
}

TEST(JinjaLexerTest, SignsChangeWhatIsTrimmed) {
  EXPECT_THAT(Data("a \n {%- x -%} \n b"), ElementsAre("a", "b"));
  EXPECT_THAT(Data("a\n  {%+ x +%}\nb"), ElementsAre("a\n  ", "\nb"));
  EXPECT_THAT(Data("a \n {{- x -}} \n b"), ElementsAre("a", "b"));
  EXPECT_THAT(Data("a \n {#- x -#} \n b"), ElementsAre("a", "b"));
  EXPECT_THAT(Data("a\u00a0{%- x %}b"), ElementsAre("a", "b"));
}

TEST(JinjaLexerTest, RawTextIsNotRead) {
  EXPECT_THAT(Data("{% raw %}{{ x }}{% y %}{% endraw %}\nz"), ElementsAre("{{ x }}{% y %}", "z"));
  EXPECT_THAT(Data("{%- raw -%} {{ {%- endraw -%} z"), ElementsAre("{{", "z"));
}

TEST(JinjaLexerTest, LineBreaksOfAllSystemsAreOne) {
  EXPECT_THAT(Data("a\r\nb\rc\n"), ElementsAre("a\nb\nc"));
  EXPECT_THAT(Data("a\n\n"), ElementsAre("a\n"));
  EXPECT_EQ(Refusal("a\r\nb\r{{ $ }}").second, 3);
}

TEST(JinjaLexerTest, BracketsHideTheEndOfATag) {
  const auto tokens = Tokenize("{{ {'a': {}}}}");
  EXPECT_EQ(tokens[tokens.size() - 2].kind, TokenKind::kVariableEnd);
  EXPECT_EQ(tokens.size(), 9u);
}

TEST(JinjaLexerTest, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* source;
    const char* message;
    int line;
  } cases[] = {
      {"a\n{{ x", "a {{ has no }}", 2},
      {"{% x\n", "a {% has no %}", 1},
      {"\n\n{# x", "a comment has no end", 3},
      {"{% raw %}\nx", "{% raw %} has no {% endraw %}", 1},
      {"{{ 'x }}", "a string has no end", 1},
      {"{{ (] }}", "unexpected ']', expected ')'", 1},
      {"{{ ) }}", "unexpected ')'", 1},
      {"{{\n$ }}", "unexpected character '$'", 2},
      {"{{ é }}", "unexpected character 'é'", 1},
      {"{{ '\\ud800' }}", "a string has an escape that is no character", 1},
      {"{{ '\\x4' }}", "a string has an escape that is no character", 1},
      {"{{ '\\N{DIGIT ONE}' }}", "the escape \\N is not supported in a string", 1},
      {"{{ 99999999999999999999 }}", "the integer 99999999999999999999 does not fit into 64 bits",
       1},
      {"{{ 0x10 }}", "integers other than decimal ones are not supported", 1},
  };
  for (const auto& c : cases) {
    const auto [message, line] = Refusal(c.source);
    EXPECT_EQ(message, c.message) << c.source;
    EXPECT_EQ(line, c.line) << c.source;
  }
}

}  // namespace
}  // namespace muster::jinja
