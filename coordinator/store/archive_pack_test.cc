#include "coordinator/store/archive_pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace muster {
namespace {

using ::testing::SizeIs;

ArchivedRecords RecordsOf(int number) {
  ArchivedRecords records;
  records.job.id = JobId{std::to_string(1000 + number)};
  records.job.name = "a \"job\"\nof two lines, \xc3\xbc";
  records.job.spec_yaml = "name: a\ntrain:\n  seed: " + std::to_string(number) + "\n";
  records.job.output_dir = "/jobs/out";
  records.job.submit_order = static_cast<std::uint64_t>(number);
  records.job.state = JobState::kSucceeded;
  for (int generation = 1; generation <= 2; ++generation)
    records.attempts.push_back({.job = records.job.id, .generation = generation});
  records.checkpoints.push_back({.job = records.job.id, .step = 5, .directory = "step-5"});
  return records;
}

void AddTo(ArchivePack* pack, const ArchivedRecords& records) {
  pack->Add({ArchivedJobOf(records.job), records.job.name, records.job.output_dir}, records);
}

ArchivePack PackOf(int jobs) {
  ArchivePack pack;
  for (int i = 0; i < jobs; ++i) AddTo(&pack, RecordsOf(i));
  return pack;
}

void ExpectJob(const ArchivePack& pack, const ArchivedRecords& expected) {
  const auto records = pack.Records(expected.job.id);
  ASSERT_TRUE(records.ok()) << records.status().ToString();
  EXPECT_EQ(records->job, expected.job);
  EXPECT_EQ(records->attempts, expected.attempts);
  EXPECT_EQ(records->checkpoints, expected.checkpoints);
  EXPECT_EQ(*pack.Job(expected.job.id), expected.job);
}

TEST(ArchivePack, JobsComeBackAsTheyWerePacked) {
  const ArchivePack::Values values = PackOf(20).Encode();
  const auto pack = ArchivePack::Decode(values);
  ASSERT_TRUE(pack.ok()) << pack.status().ToString();
  for (int i = 0; i < 20; ++i) ExpectJob(*pack, RecordsOf(i));
  const auto index = ArchivePack::DecodeIndex(values.index);
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  ASSERT_THAT(*index, SizeIs(20));
  EXPECT_EQ((*index)[7].job, ArchivedJobOf(RecordsOf(7).job));
  EXPECT_EQ((*index)[7].name, RecordsOf(7).job.name);
  EXPECT_EQ((*index)[7].output_dir, "/jobs/out");
}

TEST(ArchivePack, AJobIsReplacedAndRemovedAlone) {
  ArchivePack pack = PackOf(3);
  ArchivedRecords changed = RecordsOf(1);
  changed.checkpoints[0].verified_unix_ms = 7;
  pack.Replace(changed.job.id, changed);
  pack.Remove(RecordsOf(0).job.id);
  const auto read = ArchivePack::Decode(pack.Encode());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_THAT(read->entries(), SizeIs(2));
  ExpectJob(*read, changed);
  ExpectJob(*read, RecordsOf(2));
  pack.Remove(changed.job.id);
  pack.Remove(RecordsOf(2).job.id);
  EXPECT_TRUE(pack.empty());
}

TEST(ArchivePack, IsFullByItsJobsAndByItsBytes) {
  EXPECT_FALSE(PackOf(63).full());
  EXPECT_TRUE(PackOf(64).full());
  ArchivePack pack = PackOf(1);
  ArchivedRecords large = RecordsOf(2);
  large.job.spec_yaml.assign(300'000, 'x');
  AddTo(&pack, large);
  EXPECT_TRUE(pack.full());
}

TEST(ArchivePack, JobsThatAreAlikeTakeAQuarterOfTheirText) {
  std::size_t text = 0;
  for (int i = 0; i < 64; ++i) text += Encode(RecordsOf(i).job).size();
  const ArchivePack::Values values = PackOf(64).Encode();
  EXPECT_LT(values.records.size() + values.index.size(), text / 4);
}

TEST(ArchivePack, DamageIsFound) {
  const ArchivePack::Values values = PackOf(3).Encode();
  for (std::size_t at = 0; at < values.records.size(); at += 5) {
    ArchivePack::Values damaged = values;
    damaged.records[at] = static_cast<char>(damaged.records[at] ^ 0x10);
    EXPECT_FALSE(ArchivePack::Decode(damaged).ok()) << at;
  }
  for (const char* nothing : {"", "{", "\x28\xb5\x2f\xfd"}) {
    EXPECT_EQ(ArchivePack::Decode({values.records, nothing}).status().code(),
              StatusCode::kDataLoss);
    EXPECT_EQ(ArchivePack::Decode({nothing, values.index}).status().code(), StatusCode::kDataLoss);
  }
}

TEST(ArchivePack, RecordsAndIndexOfOtherJobsAreNoPack) {
  const ArchivePack::Values three = PackOf(3).Encode(), four = PackOf(4).Encode();
  EXPECT_EQ(ArchivePack::Decode({three.records, four.index}).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(ArchivePack::Decode({four.records, three.index}).status().code(),
            StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster
