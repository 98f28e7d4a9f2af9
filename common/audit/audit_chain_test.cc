#include "common/audit/audit_chain.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::HasSubstr;

AuditEntry Entry(const std::string& object) {
  return {.unix_ms = 1'790'000'000'000,
          .actor = "user/ada",
          .as_user = "",
          .peer = "ipv4:10.0.0.7:4711",
          .request = "a1b2c3d4-7",
          .operation = "Cancel",
          .object = object,
          .outcome = "OK",
          .detail = "a \"quoted\" reason\n\xff"};
}

std::vector<std::string> Trail(int count, AuditHead* head) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i)
    lines.push_back(SealAuditEntry(Entry("job " + std::to_string(i)), head));
  return lines;
}

Status Verify(const std::vector<std::string>& lines, const AuditHead& kept = {}) {
  AuditVerifier verifier(kept);
  for (const std::string& line : lines) {
    const Status status = verifier.Add(line);
    if (!status.ok()) return status;
  }
  return verifier.End();
}

TEST(AuditChain, ALineSaysWhatWasSealed) {
  AuditHead head;
  const std::string line = SealAuditEntry(Entry("job 1"), &head);
  EXPECT_EQ(line.find('\n'), line.npos);
  const auto read = ReadAuditLine(line);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  AuditEntry expected = Entry("job 1");
  expected.seq = 1;
  expected.detail = read->entry.detail;  // made valid UTF-8
  EXPECT_EQ(read->entry, expected);
  EXPECT_THAT(read->entry.detail, HasSubstr("a \"quoted\" reason\n"));
  EXPECT_EQ(read->previous, std::string(64, '0'));
  EXPECT_EQ(read->head(), head);
  EXPECT_EQ(*AuditHeadOf(line), head);
}

TEST(AuditChain, WhatWasWrittenIsFoundWhole) {
  AuditHead head;
  const auto lines = Trail(20, &head);
  EXPECT_EQ(Verify(lines), OkStatus());
  EXPECT_EQ(Verify(lines, head), OkStatus());
  EXPECT_EQ(Verify({}), OkStatus());
  // A part that begins later, after older entries were removed as they may be.
  const std::vector<std::string> rest(lines.begin() + 5, lines.end());
  EXPECT_EQ(Verify(rest), OkStatus());
  EXPECT_EQ(Verify(rest, *AuditHeadOf(lines[10])), OkStatus());
  EXPECT_EQ(Verify(rest, *AuditHeadOf(lines[4])), OkStatus()) << "the one before the first";
}

TEST(AuditChain, EachDamageIsFound) {
  AuditHead head;
  const auto lines = Trail(20, &head);
  const auto with = [&lines](const auto& damage) {
    std::vector<std::string> copy = lines;
    damage(copy);
    return copy;
  };
  const auto edited = with([](auto& copy) { copy[7][copy[7].find("Cancel")] = 'K'; });
  EXPECT_THAT(Verify(edited).message(), HasSubstr("audit entry 8: was changed"));
  const auto moved = with([](auto& copy) { std::swap(copy[3], copy[4]); });
  EXPECT_EQ(Verify(moved).code(), StatusCode::kDataLoss);
  const auto removed = with([](auto& copy) { copy.erase(copy.begin() + 9); });
  EXPECT_THAT(Verify(removed).message(), HasSubstr("audit entry 10: is missing"));
  const auto twice = with([](auto& copy) { copy.insert(copy.begin() + 9, copy[9]); });
  EXPECT_EQ(Verify(twice).code(), StatusCode::kDataLoss);
  const auto cut = with([](auto& copy) { copy.back().resize(copy.back().size() - 1); });
  EXPECT_EQ(Verify(cut).code(), StatusCode::kDataLoss);
  const auto shorter = with([](auto& copy) { copy.resize(15); });
  EXPECT_EQ(Verify(shorter), OkStatus()) << "only a kept head shows that";
  EXPECT_THAT(Verify(shorter, head).message(),
              HasSubstr("audit entry 20: is missing: the trail ends with entry 15"));
  EXPECT_EQ(Verify({}, head).code(), StatusCode::kDataLoss);
}

TEST(AuditChain, ATrailThatWasWrittenAgainFromSomewhereIsAnotherOne) {
  AuditHead head;
  const auto lines = Trail(20, &head);
  // The owner of the disk can write a chain of its own from any entry on.
  AuditHead forked = *AuditHeadOf(lines[9]);
  std::vector<std::string> forged(lines.begin(), lines.begin() + 10);
  for (int i = 0; i < 15; ++i) forged.push_back(SealAuditEntry(Entry("other"), &forked));
  EXPECT_EQ(Verify(forged), OkStatus());
  EXPECT_THAT(Verify(forged, head).message(), HasSubstr("audit entry 20: is another one"));
  // A part of it within the other.
  std::vector<std::string> mixed(lines.begin(), lines.begin() + 12);
  mixed.insert(mixed.end(), forged.begin() + 12, forged.end());
  EXPECT_THAT(Verify(mixed).message(), HasSubstr("audit entry 13: does not follow"));
  // One that begins behind the kept head, as if older entries had been removed.
  const std::vector<std::string> late(forged.begin() + 22, forged.end());
  EXPECT_EQ(Verify(late, head).code(), StatusCode::kDataLoss);
  const std::vector<std::string> next(forged.begin() + 20, forged.end());
  EXPECT_THAT(Verify(next, head).message(), HasSubstr("audit entry 20: is another one"));
}

TEST(AuditChain, TextThatIsNoLineIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string(200, 'x'),
        ",\"hash\":\"" + std::string(64, '0') + "\"}", std::string("\0\0", 2)}) {
    EXPECT_EQ(ReadAuditLine(text).status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(AuditHeadOf(text).status().code(), StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace muster
