#include "common/job_spec/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = "name: a\ncommand: [x]\nworkdir: runs/\n";

TEST(JobFile, ItsWorkdirIsBelowItsOwnFolder) {
  const auto job = ResolveJob({kJob, "job.yaml", "/data/jobs"}, {"name=b"});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->spec.workdir, "/data/jobs/runs");
  EXPECT_EQ(job->spec.name, "b");
  EXPECT_EQ(ParseJobSpec(job->yaml)->workdir, "/data/jobs/runs");
}

TEST(JobFile, AWorkdirOfTheCommandLineIsBelowTheCurrentDirectory) {
  const auto job = ResolveJob({kJob, "job.yaml", "/data/jobs"}, {"workdir=here"});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->spec.workdir, (std::filesystem::current_path() / "here").string());
}

TEST(JobFile, AFaultOfItsOwnHasItsLineAndOneOfAnOverrideTheFlag) {
  const JobFile broken{"name: a\ncommand: [x]\nnonsense: 1\n", "job.yaml", "/"};
  EXPECT_THAT(ResolveJob(broken, {}).status().message(), HasSubstr("job.yaml:3"));
  EXPECT_THAT(ResolveJob(broken, {"priority=3"}).status().message(), HasSubstr("job.yaml:3"));
  EXPECT_THAT(ResolveJob({kJob, "job.yaml", "/"}, {"priority=x"}).status().message(),
              HasSubstr("job.yaml with --set: priority"));
}

TEST(JobFile, IsAmendedBehindTheOverrides) {
  const auto job = ResolveJob({kJob, "job.yaml", "/"}, {"name=b"}, [](const std::string& yaml) {
    EXPECT_THAT(yaml, HasSubstr("name: \"b\""));
    return ApplyOverrides(yaml, {"name=c"});
  });
  EXPECT_EQ(job->spec.name, "c");
  const auto refused = ResolveJob({kJob, "job.yaml", "/"}, {}, [](const std::string&) {
    return Result<std::string>(InvalidArgument("not so"));
  });
  EXPECT_EQ(refused.status().message(), "not so");
}

TEST(JobFile, IsReadWithItsFolder) {
  const TempDirForTest dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "job.yaml", kJob).ok());
  const auto file = ReadJobFile(dir / "job.yaml");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->text, kJob);
  EXPECT_EQ(file->folder, dir.path());
  EXPECT_EQ(ReadJobFile(dir / "none.yaml").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(dir / "large.yaml", std::string((1 << 20) + 1, '#')).ok());
  EXPECT_EQ(ReadJobFile(dir / "large.yaml").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
