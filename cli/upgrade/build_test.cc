#include "cli/upgrade/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/version.h"

namespace muster::upgrade {
namespace {

using ::testing::HasSubstr;

std::string Printed() {
  return Json{{"version", kVersion}, {"versions", TableJson(OwnBuild())}}.dump();
}

TEST(Build, ATableSurvivesItsWayThroughJson) {
  const Result<Build> parsed = ParseBuild(Printed());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(*parsed, OwnBuild());
  EXPECT_EQ(parsed->table.size(), kVersionTable.size()) << "no two rows have one key";
}

TEST(Build, AVersionWithoutATableIsNamed) {
  const Result<Build> parsed = ParseBuild(R"({"version": "0.2.0-alpha", "protocol_version": 2})");
  EXPECT_EQ(parsed.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(parsed.status().message(), HasSubstr("version 0.2.0-alpha has no table"));
  EXPECT_EQ(ParseBuild("no json").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseBuild(R"({"version": "1", "versions": {"protocol": 2}})").status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Build, AReleaseIsAFileAProgramOrItsDirectory) {
  const TempDirForTest dir;
  const std::string file = dir / "versions.json";
  ASSERT_TRUE(WriteFileAtomically(file, Printed()).ok());
  EXPECT_EQ(ReadBuild(file).value(), OwnBuild());
  EXPECT_EQ(ReadBuild(dir / "none").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ReadBuild(dir.path()).status().message(), HasSubstr("neither muster nor bin/muster"));
  std::filesystem::create_directory(dir / "bin");
  const std::string program = dir / "bin/muster";
  const std::string script =
      "#!/bin/sh\n[ \"$*\" = '--dir /nonexistent version -o json' ] || exit 9\ncat " + file;
  ASSERT_TRUE(WriteFileAtomically(program, script).ok());
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  for (const std::string& path : {program, dir / "bin", dir.path()}) {
    const Result<Build> read = ReadBuild(path);
    ASSERT_TRUE(read.ok()) << path << ": " << read.status().ToString();
    EXPECT_EQ(*read, OwnBuild());
  }
  ASSERT_TRUE(WriteFileAtomically(program, "#!/bin/sh\necho broken >&2; exit 3").ok());
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);
  EXPECT_THAT(ReadBuild(program).status().message(), HasSubstr("exit code 3"));
}

}  // namespace
}  // namespace muster::upgrade
