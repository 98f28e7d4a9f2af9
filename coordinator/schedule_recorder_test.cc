// Recordings of a coordinator: continued, bounded, and never in the way.

#include "coordinator/schedule_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "coordinator/replay/recording.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ScheduleRecorderTest : public testing::Test {
 protected:
  // The recorder writes what it has before it is gone.
  Status Record(int passes, std::int64_t max_bytes = kMaxRecordingBytes) {
    auto recorder = ScheduleRecorder::Open(path_, max_bytes);
    MUSTER_RETURN_IF_ERROR(recorder.status());
    for (int i = 0; i < passes; ++i) (*recorder)->Record({}, {}, i);
    return OkStatus();
  }
  std::string Bytes() const { return *ReadFile(path_); }
  int Passes() const {
    const std::string bytes = Bytes();
    RecordingReader reader(bytes, path_);
    v1::SchedulePass pass;
    for (;;) {
      const Result<bool> more = reader.Next(&pass);
      EXPECT_TRUE(more.ok()) << more.status().message();
      if (!more.ok() || !*more) return reader.passes();
    }
  }

  const TempDirForTest dir_;
  const std::string path_ = dir_ / "passes.schedule";
};

TEST_F(ScheduleRecorderTest, ARecordingIsContinued) {
  ASSERT_TRUE(Record(3).ok());
  EXPECT_EQ(Passes(), 3);
  ASSERT_TRUE(Record(2).ok());
  EXPECT_EQ(Passes(), 5);
}

TEST_F(ScheduleRecorderTest, APassThatWasNotWrittenToItsEndIsRemoved) {
  ASSERT_TRUE(Record(3).ok());
  const std::string bytes = Bytes();
  ASSERT_TRUE(WriteFileAtomically(path_, bytes.substr(0, bytes.size() - 1)).ok());
  ASSERT_TRUE(Record(1).ok());
  EXPECT_EQ(Passes(), 3);
}

TEST_F(ScheduleRecorderTest, AFullOneEndsAndStaysReadable) {
  ASSERT_TRUE(Record(100, 500).ok());
  EXPECT_GT(Passes(), 0);
  EXPECT_LT(Passes(), 100);
  EXPECT_LE(Bytes().size(), 500u);
  const int passes = Passes();
  ASSERT_TRUE(Record(1, 500).ok()) << "a coordinator starts with a full one";
  EXPECT_EQ(Passes(), passes);
}

TEST_F(ScheduleRecorderTest, AForeignFileIsLeftAlone) {
  ASSERT_TRUE(WriteFileAtomically(path_, "queues: {}\n").ok());
  EXPECT_THAT(Record(1).message(), HasSubstr("is no recording of schedules"));
  EXPECT_EQ(Bytes(), "queues: {}\n");
}

}  // namespace
}  // namespace muster
