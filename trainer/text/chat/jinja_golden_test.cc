// The engine against Python's jinja2: testdata/*.golden.jsonl, made by
// tests/golden/make_chat_golden.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "common/base/json.h"
#include "trainer/text/chat/jinja/template.h"
#include "trainer/text/chat/testing/family_rows.h"

namespace muster::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadTestdata(const std::string& name) {
  std::ifstream file(std::string(MUSTER_TESTDATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> ReadRows(const std::string& name) {
  std::vector<Json> rows;
  std::istringstream file(ReadTestdata(name));
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

// Whether the template gives what the golden row says.
::testing::AssertionResult Agrees(const Result<Text>& text, const Json& golden) {
  if (!golden.contains("text")) {
    if (!text.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "jinja2 refuses, but here is: " << text->bytes();
  }
  if (!text.ok()) return ::testing::AssertionFailure() << text.status().message();
  if (text->bytes() == golden["text"].get<std::string>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "jinja2: " << golden["text"] << "\nhere:   " << Json(text->bytes());
}

TEST(JinjaGoldenTest, SnippetsGiveWhatPythonGives) {
  const std::vector<Json> rows = ReadRows("snippets.golden.jsonl");
  ASSERT_GT(rows.size(), 150u);
  RenderInput input;
  for (const auto& [name, value] : rows[0]["variables"].items())
    input.variables.emplace_back(name, FromJson(value));
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i]["template"].get<std::string>();
    const auto parsed = Template::Parse(source, "snippet");
    EXPECT_TRUE(
        Agrees(parsed.ok() ? parsed->Render(input) : Result<Text>(parsed.status()), rows[i]))
        << source;
  }
}

class ConversationGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ConversationGoldenTest, ConversationsGiveWhatPythonGives) {
  const std::string name = GetParam();
  const auto parsed = Template::Parse(ReadTestdata(name + ".jinja"), name);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const std::vector<Json> conversations = ReadRows("conversations.jsonl");
  const std::vector<Json> golden = ReadRows(name + ".golden.jsonl");
  ASSERT_EQ(conversations.size(), 200u);
  ASSERT_EQ(golden.size(), conversations.size());
  std::size_t texts = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_TRUE(Agrees(parsed->Render(RenderInputOf(conversations[i])), golden[i]))
        << "conversation " << i;
    texts += golden[i].contains("text") ? 1 : 0;
  }
  EXPECT_GT(texts, 100u) << "the template refuses most conversations, so that little is compared";
}

INSTANTIATE_TEST_SUITE_P(Templates, ConversationGoldenTest,
                         ::testing::Values("llama31_shape", "qwen25_shape", "qwen3_shape",
                                           "mistral_shape", "zephyr_shape", "generation"),
                         [](const auto& test) { return std::string(test.param); });

class FamilyGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyGoldenTest, ItsConversationsGiveWhatPythonGives) {
  const std::string name = GetParam();
  const auto parsed = Template::Parse(ReadTestdata(name + ".jinja"), name);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const std::vector<Json> rows = ReadRows(name + ".family.jsonl");
  ASSERT_EQ(rows.size(), 30u);
  std::size_t texts = 0;
  for (const Json& row : rows) {
    EXPECT_TRUE(Agrees(parsed->Render(RenderInputOf(row["conversation"])), row))
        << row["conversation"];
    texts += row.contains("text") ? 1 : 0;
  }
  EXPECT_GT(texts, 20u);
}

INSTANTIATE_TEST_SUITE_P(Templates, FamilyGoldenTest,
                         ::testing::Values("gemma2_shape", "gemma3_shape", "gpt_oss_shape",
                                           "granite3_shape", "mixtral_shape", "olmoe_shape",
                                           "phi3_shape", "phi4_mini_shape", "phi4_shape",
                                           "qwen3_shape"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace muster::jinja
