#include "trainer/verbs/chat_session.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "common/base/json.h"
#include "trainer/verbs/testing/generator_testing.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChatSessionTest : public GeneratorTest {
 protected:
  void SetUp() override {
    GeneratorTest::SetUp();
    generator_.emplace(Load());
  }
  ChatSession Session(const std::string& system = "") {
    ChatTemplate chatml = std::move(ChatTemplate::BuiltIn("chatml").value());
    return ChatSession(*generator_, std::move(chatml), {.max_new_tokens = 8}, system);
  }
  static std::string Told(ChatSession& session, const std::string& input, bool interrupt = false) {
    std::istringstream in(input);
    std::ostringstream out;
    Converse(session, in, out, [=] { return interrupt; });
    return out.str();
  }

 private:
  std::optional<TextGenerator> generator_;
};

TEST_F(ChatSessionTest, RemembersTheTurnsBefore) {
  ChatSession session = Session("Be brief.");
  const auto first = session.Say("Hello", Ignore);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(session.messages(), 3u);
  const auto second = session.Say("And?", Ignore);
  EXPECT_EQ(session.messages(), 5u);
  EXPECT_GT(second->prompt_tokens, first->prompt_tokens);
  EXPECT_GE(second->reused_tokens, first->prompt_tokens) << "the first turn is not computed again";
  session.Clear();
  EXPECT_EQ(session.messages(), 1u) << "the system turn stays";
}

TEST_F(ChatSessionTest, LeavesOutATurnThatCouldNotBeAnswered) {
  ChatSession session = Session();
  ASSERT_TRUE(session.Say("Hello", Ignore).ok());
  EXPECT_FALSE(session.Say(std::string(300, 'x'), Ignore).ok());
  EXPECT_EQ(session.messages(), 2u);
  EXPECT_TRUE(session.Say("Still there?", Ignore).ok());
}

TEST_F(ChatSessionTest, FindsTheEndOfATurnInEitherKindOfTemplate) {
  const TextGenerator generator = Load();
  const auto end = generator.tokenizer().TokenId("<|im_end|>");
  ASSERT_TRUE(end.has_value());
  const auto built_in = ChatTemplate::BuiltIn("chatml");
  EXPECT_THAT(EndsOfTurn(*built_in, generator.tokenizer()), ElementsAre(*end));
  const auto jinja = [&](const std::string& turn_end) {
    const std::string text =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" + turn_end +
        "\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    const auto loaded = ChatTemplate::LoadFile(dir_.Write("chat.jinja", text), dir_.path());
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return EndsOfTurn(*loaded, generator.tokenizer());
  };
  EXPECT_THAT(jinja("<|im_end|>"), ElementsAre(*end));
  EXPECT_THAT(jinja(" (end)"), ElementsAre()) << "plain text";
}

// As a base model that was trained on conversations: its files name no such end.
TEST_F(ChatSessionTest, AnAnswerEndsWithItsTurn) {
  const std::string path = dir_ / "config.json";
  std::ifstream in(path);
  nlohmann::json config = nlohmann::json::parse(in);
  config["eos_token_id"] = nullptr;
  dir_.Write("config.json", config.dump());
  std::filesystem::remove(dir_ / "generation_config.json");
  TextGenerator generator = Load();
  ASSERT_TRUE(generator.config().eos_token_ids.empty());
  const std::int32_t end = *generator.tokenizer().TokenId("<|im_end|>");
  GenerationSettings settings{.sampling = {.temperature = 5, .seed = 1}, .max_new_tokens = 100};
  Generated made;
  for (; settings.sampling.seed < 100; ++settings.sampling.seed) {
    ChatSession session(generator, ChatTemplate::BuiltIn("chatml").value(), settings, "");
    made = std::move(session.Say("Hello", Ignore).value());
    EXPECT_EQ(std::count(made.ids.begin(), made.ids.end(), end), 0);
    if (made.reason == FinishReason::kEndOfText) break;
  }
  EXPECT_EQ(made.reason, FinishReason::kEndOfText) << "nothing but the turn's end can give that";
}

TEST_F(ChatSessionTest, AnswersLineByLine) {
  ChatSession session = Session();
  EXPECT_THAT(Told(session, "Hello\n\nAnd?\n"), HasSubstr("> "));
  EXPECT_EQ(session.messages(), 4u) << "an empty line is no turn";
  Told(session, "/clear\nHello\n/exit\nnever read\n");
  EXPECT_EQ(session.messages(), 2u);
}

TEST_F(ChatSessionTest, SaysWhyATurnHasNoAnswer) {
  ChatSession session = Session();
  EXPECT_THAT(Told(session, std::string(300, 'x')), HasSubstr("the model's context"));
  EXPECT_THAT(Told(session, "Hello\n", /*interrupt=*/true), HasSubstr("(ended by interrupted)"));
}

}  // namespace
}  // namespace muster
