#include "worker/allocation/log_carrier.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

TEST(LogCarrier, BringsWhatIsNewAndKeepsWhatIsThere) {
  const TempDirForTest temp;
  LogCarrier carrier(temp / "local", temp / "shared");
  EXPECT_TRUE(carrier.Carry().ok()) << "nothing was written yet";
  std::ofstream(temp / "shared") << "an earlier run\n";
  const std::string much(200000, 'x');
  std::ofstream log(temp / "local");
  log << "one\n" << std::flush;
  ASSERT_TRUE(carrier.Carry().ok());
  ASSERT_TRUE(carrier.Carry().ok());
  log << much << std::flush;
  ASSERT_TRUE(carrier.Carry().ok());
  EXPECT_EQ(ReadFile(temp / "shared").value(), "an earlier run\none\n" + much);
}

TEST(LogCarrier, WhatCouldNotBeWrittenIsBroughtLater) {
  const TempDirForTest temp;
  LogCarrier carrier(temp / "local", temp / "not-there/shared");
  std::ofstream(temp / "local") << "one\n";
  EXPECT_FALSE(carrier.Carry().ok());
  ASSERT_TRUE(MakeDirectories(temp / "not-there").ok());
  EXPECT_TRUE(carrier.Carry().ok());
  EXPECT_EQ(ReadFile(temp / "not-there/shared").value(), "one\n");
}

}  // namespace
}  // namespace muster::worker
