#include "common/security/issued_register.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

constexpr std::int64_t kNow = 1'800'000'000'000;

CertificateInfo Entry(int number, std::int64_t not_after_ms = kNow + 1000) {
  const std::string digits = ToHex(Sha256(std::to_string(number))).substr(0, 32);
  return {{Role::kNode, "n" + std::to_string(number), "lab"}, digits, kNow, not_after_ms};
}

class IssuedRegister : public ::testing::Test {
 protected:
  Status Record(const CertificateInfo& entry) { return RecordIssued(path_, {&entry, 1}, kNow); }

  const TempDirForTest temp_;
  const std::string path_ = temp_ / "issued.jsonl";
};

TEST_F(IssuedRegister, KeepsWhatIsRecordedInOrder) {
  EXPECT_TRUE(ReadIssued(path_)->empty());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Record(Entry(i)).ok());
  EXPECT_EQ(*ReadIssued(path_), (std::vector{Entry(0), Entry(1), Entry(2)}));
}

TEST_F(IssuedRegister, PassesOverALineThatACrashHasCut) {
  ASSERT_TRUE(Record(Entry(0)).ok());
  const std::string whole = *ReadFile(path_);
  ASSERT_TRUE(WriteFileAtomically(path_, whole + R"({"serial": "00)", 0600).ok());
  EXPECT_EQ(ReadIssued(path_)->size(), 1U);
  ASSERT_TRUE(Record(Entry(1)).ok());
  EXPECT_EQ(*ReadIssued(path_), (std::vector{Entry(0), Entry(1)}));
}

TEST_F(IssuedRegister, NamesALineThatIsNone) {
  ASSERT_TRUE(Record(Entry(0)).ok());
  const std::string whole = *ReadFile(path_);
  for (const char* line :
       {"null", "{}", "[1]", "x", R"({"serial":"00","identity":"muster://a/node/b",
      "issued_ms":1,"not_after_ms":1})"}) {
    ASSERT_TRUE(WriteFileAtomically(path_, whole + line + "\n", 0600).ok());
    const auto read = ReadIssued(path_);
    EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << line;
    EXPECT_NE(read.status().message().find(path_ + ":2"), std::string::npos);
  }
}

TEST_F(IssuedRegister, ForgetsExpiredOnesOnceItIsLarge) {
  ASSERT_TRUE(Record(Entry(0)).ok());
  ASSERT_TRUE(Record(Entry(1, kNow - 1)).ok());
  const std::string two = *ReadFile(path_);
  const std::string expired = two.substr(two.find('\n') + 1);
  std::string large = two;
  while (large.size() < 1 << 20) large += expired;
  ASSERT_TRUE(WriteFileAtomically(path_, large, 0600).ok());
  ASSERT_TRUE(Record(Entry(2)).ok());
  EXPECT_EQ(*ReadIssued(path_), (std::vector{Entry(0), Entry(2)}));
}

TEST_F(IssuedRegister, KeepsACertificateOnce) {
  const std::vector entries = {Entry(0), Entry(1)};
  ASSERT_TRUE(RecordIssued(path_, entries, kNow).ok());
  ASSERT_TRUE(RecordIssued(path_, std::vector{Entry(1), Entry(2)}, kNow).ok());
  EXPECT_EQ(*ReadIssued(path_), (std::vector{Entry(0), Entry(1), Entry(2)}));
}

TEST_F(IssuedRegister, LosesNoneOfManyConcurrentWrites) {
  constexpr int kWriters = 64;
  constexpr int kEach = 4;
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      std::vector<CertificateInfo> entries;
      for (int i = 0; i < kEach; ++i) entries.push_back(Entry(writer * kEach + i));
      if (!RecordIssued(path_, entries, kNow).ok()) ++failed;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  std::set<std::string> nodes;
  const auto issued = ReadIssued(path_);
  for (const CertificateInfo& entry : *issued) nodes.insert(entry.identity.name);
  EXPECT_EQ(nodes.size(), std::size_t{kWriters} * kEach);
}

}  // namespace
}  // namespace muster
