#include "trainer/verbs/chat_session.h"

#include <optional>
#include <sstream>

#include "trainer/verbs/generator_testing.h"

namespace muster {
namespace {

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
