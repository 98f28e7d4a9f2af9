#include "worker/health/node_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>

#include "common/base/json.h"
#include "common/base/locked_record.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/spawn.h"
#include "worker/guardian/protocol.h"
#include "worker/process/record_file.h"

namespace muster::worker {
namespace {

TEST(KillGuardians, AProcessThatHasTheNumberOfAGuardianIsNotSignalled) {
  const TempDirForTest dir;
  std::filesystem::create_directory(dir / "job");
  const auto child = SpawnChild({.argv = {"/bin/sleep", "60"}, .die_with_parent = true});
  ASSERT_TRUE(child.ok());
  const auto info = ReadProcess(*child);
  ASSERT_TRUE(info.ok());
  auto record = LockedRecord::Acquire(dir / ("job/" + std::string(kGuardianRecordName)));
  ASSERT_TRUE(record.ok());
  const auto write = [&](std::uint64_t start_time) {
    return record->Write(nlohmann::json{{"pid", *child}, {"start_time", start_time}}.dump());
  };
  ASSERT_TRUE(write(info->start_time - 1).ok());
  KillGuardians(dir.path());
  // A signal that was sent would have come before this one.
  ASSERT_TRUE(write(info->start_time).ok());
  ::kill(*child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(*child, &status, 0), *child);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(KillGuardians, EndsTheOneOfTheRecord) {
  const TempDirForTest dir;
  std::filesystem::create_directory(dir / "job");
  const auto child = SpawnChild({.argv = {"/bin/sleep", "60"}, .die_with_parent = true});
  ASSERT_TRUE(child.ok());
  const auto info = ReadProcess(*child);
  ASSERT_TRUE(info.ok());
  auto record = LockedRecord::Acquire(dir / ("job/" + std::string(kGuardianRecordName)));
  ASSERT_TRUE(record.ok());
  ASSERT_TRUE(
      record->Write(nlohmann::json{{"pid", *child}, {"start_time", info->start_time}}.dump()).ok());
  KillGuardians(dir.path());
  int status = 0;
  ASSERT_EQ(::waitpid(*child, &status, 0), *child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

}  // namespace
}  // namespace muster::worker
