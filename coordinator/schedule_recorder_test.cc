// Recordings of a coordinator: continued, bounded, and never in the way.

#include "coordinator/schedule_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

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

// The kernel writes what fits of a pass.
TEST_F(ScheduleRecorderTest, AFailedWriteLeavesWholePasses) {
  ASSERT_TRUE(Record(3).ok());
  const auto pass = (Bytes().size() - RecordingHeader().size()) / 3;
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {Bytes().size() + pass + pass / 2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = Record(5);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Passes(), 4);
  ASSERT_TRUE(Record(1).ok());
  EXPECT_EQ(Passes(), 5);
}

TEST_F(ScheduleRecorderTest, OneWithADamagedPassInTheMiddleIsLeftAlone) {
  ASSERT_TRUE(Record(3).ok());
  std::string bytes = Bytes();
  bytes[RecordingHeader().size() + 20] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path_, bytes).ok());
  const Status status = Record(1);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr(path_ + " is damaged in pass 1, at byte 12; move the file away"));
  EXPECT_EQ(Bytes(), bytes);
}

TEST_F(ScheduleRecorderTest, AHeaderThatIsCutOffIsWrittenAnew) {
  for (std::size_t size = 0; size < RecordingHeader().size(); ++size) {
    ASSERT_TRUE(WriteFileAtomically(path_, RecordingHeader().substr(0, size)).ok());
    ASSERT_TRUE(Record(1).ok());
    EXPECT_EQ(Passes(), 1);
  }
}

TEST_F(ScheduleRecorderTest, OnlyItsOwnerReadsItAndOneCoordinatorWritesIt) {
  ASSERT_TRUE(WriteFileAtomically(path_, RecordingHeader(), 0644).ok());
  const auto recorder = ScheduleRecorder::Open(path_, kMaxRecordingBytes);
  ASSERT_TRUE(recorder.ok());
  struct stat file = {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  const Status second = Record(1);
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another coordinator records to " + path_));
}

TEST_F(ScheduleRecorderTest, AForeignFileIsLeftAlone) {
  ASSERT_TRUE(WriteFileAtomically(path_, "queues: {}\n").ok());
  EXPECT_THAT(Record(1).message(), HasSubstr("is no recording of schedules"));
  EXPECT_EQ(Bytes(), "queues: {}\n");
}

}  // namespace
}  // namespace muster
