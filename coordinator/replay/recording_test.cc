// Files of recordings: whole, cut off, damaged, foreign.

#include "coordinator/replay/recording.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

v1::SchedulePass Pass(int number) {
  v1::SchedulePass pass;
  pass.set_unix_ms(number);
  pass.mutable_snapshot()->add_requests()->set_job("job" + std::to_string(number));
  return pass;
}

// What is read until the end or an error.
struct Reading {
  std::vector<std::int64_t> passes;
  Status status;
  std::size_t offset = 0;
};
Reading Read(const std::string& bytes) {
  RecordingReader reader(bytes, "a.schedule");
  Reading reading;
  for (;;) {
    v1::SchedulePass pass;
    const Result<bool> more = reader.Next(&pass);
    reading.status = more.status();
    reading.offset = reader.offset();
    if (!more.ok() || !*more) return reading;
    reading.passes.push_back(pass.unix_ms());
  }
}

TEST(Recording, GivesBackItsPassesInOrder) {
  const std::string bytes = RecordingHeader() + RecordingFrame(Pass(1)) + RecordingFrame(Pass(2));
  const Reading reading = Read(bytes);
  EXPECT_TRUE(reading.status.ok());
  EXPECT_EQ(reading.passes, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(reading.offset, bytes.size());
  EXPECT_TRUE(Read(RecordingHeader()).status.ok());
}

TEST(Recording, OneThatIsCutOffNamesThePassAndKeepsThoseBefore) {
  const std::string one = RecordingHeader() + RecordingFrame(Pass(1));
  const std::string two = one + RecordingFrame(Pass(2));
  for (std::size_t size = one.size() + 1; size < two.size(); ++size) {
    const Reading reading = Read(two.substr(0, size));
    EXPECT_EQ(reading.status.code(), StatusCode::kDataLoss) << size;
    EXPECT_NE(reading.status.message().find("a.schedule ends within pass 2, at byte"),
              std::string::npos)
        << reading.status.message();
    EXPECT_EQ(reading.passes.size(), 1u);
    EXPECT_EQ(reading.offset, one.size());
  }
}

TEST(Recording, ADamagedByteIsNoticed) {
  std::string bytes = RecordingHeader() + RecordingFrame(Pass(1));
  bytes.back() ^= 1;
  const Status status = Read(bytes).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("is damaged in pass 1"), std::string::npos) << status.message();
}

// Else a coordinator that goes on with the recording would remove all that follows.
TEST(Recording, ADamagedLengthIsNoEndOfTheFile) {
  std::string bytes = RecordingHeader() + RecordingFrame(Pass(1)) + RecordingFrame(Pass(2));
  bytes[RecordingHeader().size() + 1] ^= 1;
  RecordingReader reader(bytes, "a.schedule");
  v1::SchedulePass pass;
  const Status status = reader.Next(&pass).status();
  EXPECT_NE(status.message().find("is damaged in pass 1"), std::string::npos) << status.message();
  EXPECT_FALSE(reader.is_torn());
}

TEST(Recording, AForeignFileAndAnotherVersionAreRefused) {
  for (const std::string& foreign :
       {std::string(), std::string("MUSTERSP"), std::string(100, '{')}) {
    const Status status = Read(foreign).status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("a.schedule is no recording of schedules"), std::string::npos);
  }
  std::string newer = RecordingHeader();
  newer[8] = 2;
  EXPECT_NE(Read(newer).status.message().find("has version 2 of recordings"), std::string::npos);
}

}  // namespace
}  // namespace muster
