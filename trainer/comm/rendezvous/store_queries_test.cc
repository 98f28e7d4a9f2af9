#include "trainer/comm/rendezvous/store_queries.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Text(const std::string& text) { return Bytes<std::uint64_t>(text.size()) + text; }

std::string Keys(char query, const std::vector<std::string>& keys) {
  std::string message(1, query);
  message += Bytes<std::uint64_t>(keys.size());
  for (const std::string& key : keys) message += Text(key);
  return message;
}

std::string Set(const std::string& key, const std::string& value) {
  return "\1" + Text(key) + Text(value);
}

class StoreQueriesTest : public ::testing::Test {
 protected:
  bool Say(int client, std::string message) {
    return queries_.Take(client, message, sessions_[client]) && message.empty();
  }
  std::string Heard(int client) { return std::exchange(sessions_[client].out, {}); }

  StoreQueries queries_;
  std::map<int, StoreQueries::Session> sessions_;
};

TEST_F(StoreQueriesTest, AnswersWhatIsThere) {
  EXPECT_TRUE(Say(1, std::string(1, '\0') + Bytes<std::uint32_t>(7) + Set("a", "one") +
                         Set("b", std::string("\0x", 2))));
  EXPECT_EQ(Heard(1), "");
  EXPECT_TRUE(Say(2, "\3" + Text("a")));
  EXPECT_EQ(Heard(2), Text("one"));
  EXPECT_TRUE(Say(2, Keys(10, {"b", "a"})));
  EXPECT_EQ(Heard(2), Text(std::string("\0x", 2)) + Text("one"));
  EXPECT_TRUE(Say(2, Keys(5, {"a", "c"}) + Keys(5, {"a", "b"})));
  EXPECT_EQ(Heard(2), std::string("\1\0", 2));
}

TEST_F(StoreQueriesTest, TakesQueriesAsTheyCome) {
  const std::string whole = Set("a", "one") + "\3" + Text("a");
  std::string in;
  for (const char byte : whole) {
    EXPECT_EQ(Heard(1), "");
    in += byte;
    ASSERT_TRUE(queries_.Take(1, in, sessions_[1]));
  }
  EXPECT_EQ(in, "");
  EXPECT_EQ(Heard(1), Text("one"));
}

TEST_F(StoreQueriesTest, EndsAWaitWhenAllIsThere) {
  EXPECT_TRUE(Say(1, Keys(6, {"a", "b"})));
  EXPECT_TRUE(Say(2, Set("b", "2")));
  EXPECT_EQ(Heard(1), "");
  EXPECT_TRUE(queries_.TakeAnswered().empty());
  EXPECT_TRUE(Say(2, Set("a", "1")));
  EXPECT_EQ(queries_.TakeAnswered(), std::vector{1});
  EXPECT_EQ(Heard(1), std::string(1, '\0'));
  EXPECT_TRUE(Say(1, Keys(6, {"a", "b"})));
  EXPECT_EQ(Heard(1), std::string(1, '\0'));
}

TEST_F(StoreQueriesTest, ForgetsAWaitThatIsCancelledOrWhoseClientIsGone) {
  EXPECT_TRUE(Say(1, Keys(6, {"a"})));
  EXPECT_TRUE(Say(1, std::string(1, '\14')));
  EXPECT_EQ(Heard(1), "\1");
  EXPECT_TRUE(Say(3, Keys(6, {"a"})));
  queries_.Forget(3);
  EXPECT_TRUE(Say(2, Set("a", "1")));
  EXPECT_TRUE(queries_.TakeAnswered().empty());
}

TEST_F(StoreQueriesTest, RefusesWhatIsNoQuery) {
  EXPECT_FALSE(Say(1, "\377"));
  EXPECT_FALSE(Say(1, "\3" + Text("nothing of that name")));
  EXPECT_FALSE(Say(1, "\1" + Bytes<std::uint64_t>(1ULL << 40)));
  EXPECT_FALSE(Say(1, "\5" + Bytes<std::uint64_t>(1ULL << 40)));
}

}  // namespace
}  // namespace muster
