#include "coordinator/page/revised_parts.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(RevisedParts, AReaderGetsTheNewestStateOfWhatHasChangedSince) {
  RevisedParts parts;
  parts.Set("a", "1");
  parts.Set("b", "2");
  EXPECT_EQ(parts.Since(0, 7), R"({"now":7,"whole":true,"set":[["a",1],["b",2]],"gone":[]})");
  const std::uint64_t told = parts.revision();
  EXPECT_EQ(parts.Since(told, 7), R"({"now":7,"whole":false,"set":[],"gone":[]})");
  parts.Set("b", "3");
  parts.Set("b", "4");
  EXPECT_EQ(parts.Since(told, 7), R"({"now":7,"whole":false,"set":[["b",4]],"gone":[]})");
}

TEST(RevisedParts, EqualTextIsNoChange) {
  RevisedParts parts;
  parts.Set("a", "1");
  const std::uint64_t told = parts.revision();
  parts.Set("a", "1");
  EXPECT_EQ(parts.revision(), told);
}

TEST(RevisedParts, RemovedKeysAreSentUnlessTheyAreBack) {
  RevisedParts parts;
  parts.Set("a", "1");
  parts.Set("b", "2");
  const std::uint64_t told = parts.revision();
  parts.Remove("a");
  parts.Remove("b");
  parts.Remove("never there");
  parts.Set("b", "5");
  EXPECT_EQ(parts.Since(told, 7), R"({"now":7,"whole":false,"set":[["b",5]],"gone":["a"]})");
  EXPECT_EQ(parts.Since(0, 7), R"({"now":7,"whole":true,"set":[["b",5]],"gone":[]})");
}

TEST(RevisedParts, AReaderFromBeforeWhatIsRememberedGetsAllOfIt) {
  RevisedParts parts;
  parts.Set("stays", "0");
  parts.Set("first", "1");
  const std::uint64_t before = parts.revision();
  parts.Remove("first");
  const std::uint64_t after = parts.revision();
  for (std::size_t i = 0; i < RevisedParts::kMaxGone; ++i) {
    parts.Set("x", std::to_string(i));
    parts.Remove("x");
  }
  EXPECT_EQ(parts.Since(before, 7), R"({"now":7,"whole":true,"set":[["stays",0]],"gone":[]})");
  EXPECT_NE(parts.Since(after, 7).find("\"whole\":false"), std::string::npos);
}

TEST(RevisedParts, KeysAreJsonWhateverTheyAreCalled) {
  RevisedParts parts;
  parts.Set("node/a\"b\n\xff", "1");
  EXPECT_EQ(parts.Since(0, 7),
            "{\"now\":7,\"whole\":true,\"set\":[[\"node/a\\\"b\\n\xEF\xBF\xBD\",1]],\"gone\":[]}");
}

}  // namespace
}  // namespace muster
