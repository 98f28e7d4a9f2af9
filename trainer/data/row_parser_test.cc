#include "trainer/data/row_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using Kind = RowSample::Kind;

RowSample Answer(const std::string& user, const std::string& prompt, const std::string& answer) {
  return {.kind = Kind::kAnswer,
          .messages = {},
          .tools = "",
          .user = user,
          .prompt = prompt,
          .answer = answer,
          .text = ""};
}

TEST(RowParserTest, ReadsEveryForm) {
  const struct {
    const char* line;
    std::vector<RowSample> expected;
  } cases[] = {
      {R"({"messages": [{"role": "system", "content": "Be brief."},
           {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})",
       {{.kind = Kind::kChat,
         .messages = {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yo"}}}}},
      {R"({"instruction": "Add.", "input": "1 2", "output": "3", "id": 7})",
       {Answer("Add.\n1 2", "Add.\n1 2\n", "3")}},
      {R"({"instruction": "Sing.", "input": "", "output": "La"})",
       {Answer("Sing.", "Sing.\n", "La")}},
      {R"({"instruction": "Sing.", "input": null, "output": "La"})",
       {Answer("Sing.", "Sing.\n", "La")}},
      {R"({"id": "user_0", "motivation_app": "x", "instruction": "Add.",
           "instances": [{"input": "1 2", "output": "3"}, {"input": "", "output": "0"}]})",
       {Answer("Add.\n1 2", "Add.\n1 2\n", "3"), Answer("Add.", "Add.\n", "0")}},
      {R"({"prompt": "2+2=", "completion": "4"})", {Answer("2+2=", "2+2=", "4")}},
      {R"({"text": "Once upon a time"})",
       {{.kind = Kind::kText,
         .messages = {},
         .tools = "",
         .user = "",
         .prompt = "",
         .answer = "",
         .text = "Once upon a time"}}},
      {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]},
           {"role": "tool", "content": "x", "tool_call_id": "1"}], "tools": [{"b": 1, "a": 2}]})",
       {{.kind = Kind::kChat,
         .messages = {{"assistant", "",
                       R"({"role":"assistant","content":null,"tool_calls":[{"id":"1"}]})"},
                      {"tool", "x", R"({"role":"tool","content":"x","tool_call_id":"1"})"}},
         .tools = R"([{"b":1,"a":2}])"}}},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": null})",
       {{.kind = Kind::kChat, .messages = {{"user", "x"}}}}},
      {R"({"text": "the whole", "instruction": "a", "output": "b"})", {Answer("a", "a\n", "b")}},
  };
  for (const auto& c : cases) {
    const auto samples = ParseRow(c.line);
    ASSERT_TRUE(samples.ok()) << c.line << samples.status().ToString();
    EXPECT_EQ(*samples, c.expected) << c.line;
  }
}

TEST(RowParserTest, SaysWhatIsWrongWithARow) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {
      {"{\"text\": \"cut", "not valid JSON"},
      {"{\"text\": \"a\"} extra", "not valid JSON"},
      {"{\"text\": \"\xff\"}", "not valid JSON"},
      {"[1, 2]", "is a JSON array"},
      {"\"text\"", "is a JSON string"},
      {"{}", "it has nothing"},
      {R"({"conversations": [], "id": 3})", "it has conversations, id"},
      {R"({"messages": []})", "no list of turns"},
      {R"({"messages": "hi"})", "no list of turns"},
      {R"({"messages": ["hi"]})", "messages[0] is no object"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "user"}]})",
       "messages[1] \"content\" is missing"},
      {R"({"messages": [{"role": "bot", "content": "x"}]})", "the role \"bot\""},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "not a string"},
      {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}]})",
       "messages[0] \"content\" is a null"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": {}})", "\"tools\" is no list"},
      {R"({"instruction": "a"})", "\"output\" is missing"},
      {R"({"instruction": 1, "output": "b"})", "\"instruction\" is a number"},
      {R"({"instruction": "a", "instances": []})", "\"instances\" is no list"},
      {R"({"instruction": "a", "instances": [{"input": "b"}]})",
       "instances[0]: \"output\" is missing"},
      {R"({"instruction": "a", "instances": ["b"]})", "instances[0] is no object"},
      {R"({"prompt": "a"})", "\"completion\" is missing"},
      {R"({"text": null})", "\"text\" is a null"},
  };
  for (const auto& c : cases) {
    const auto samples = ParseRow(c.line);
    ASSERT_FALSE(samples.ok()) << c.line;
    EXPECT_EQ(samples.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(samples.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace muster
