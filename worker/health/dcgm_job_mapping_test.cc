#include "worker/health/dcgm_job_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class DcgmJobMappingTest : public testing::Test {
 protected:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      names.push_back(entry.path().filename().string());
    return names;
  }
  std::string Text(const std::string& name) const {
    const auto text = ReadFile(dir_ + "/" + name);
    return text.ok() ? *text : "missing";
  }

  const TempDirForTest root_;
  const std::string dir_ = root_ / "mapping";
};

TEST_F(DcgmJobMappingTest, AFileForEachGpuNamesItsRuns) {
  DcgmJobMapping mapping(dir_, {0, 1, 2});
  ASSERT_TRUE(mapping.Begin().ok());
  ASSERT_TRUE(mapping.Set({{0, {"00c0ffee00"}}, {2, {"00c0ffee00", "00decade00"}}}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("0", "2"));
  EXPECT_EQ(Text("0"), "00c0ffee00\n");
  EXPECT_EQ(Text("2"), "00c0ffee00\n00decade00\n");
  ASSERT_TRUE(mapping.Set({{2, {"00decade00"}}}).ok());
  EXPECT_THAT(Names(), ElementsAre("2"));
  EXPECT_EQ(Text("2"), "00decade00\n");
}

TEST_F(DcgmJobMappingTest, WhatAnEarlierWorkerLeftIsRemovedAndNothingElse) {
  std::filesystem::create_directory(dir_);
  for (const char* name : {"0", "1", "7", "notes"}) std::ofstream(dir_ + "/" + name) << "4711\n";
  DcgmJobMapping mapping(dir_, {0, 1});
  ASSERT_TRUE(mapping.Begin().ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("7", "notes"));
}

TEST_F(DcgmJobMappingTest, WhoGoesTakesItsFilesAlong) {
  {
    DcgmJobMapping mapping(dir_, {0});
    ASSERT_TRUE(mapping.Begin().ok());
    ASSERT_TRUE(mapping.Set({{0, {"00c0ffee00"}}}).ok());
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DcgmJobMappingTest, WhatCouldNotBeWrittenIsTriedAgain) {
  DcgmJobMapping mapping(dir_, {0});
  ASSERT_TRUE(mapping.Begin().ok());
  std::filesystem::create_directories(dir_ + "/0/in-the-way");
  EXPECT_FALSE(mapping.Set({{0, {"00c0ffee00"}}}).ok());
  std::filesystem::remove_all(dir_ + "/0");
  EXPECT_TRUE(mapping.Set({{0, {"00c0ffee00"}}}).ok());
  EXPECT_EQ(Text("0"), "00c0ffee00\n");
}

}  // namespace
}  // namespace muster::worker
