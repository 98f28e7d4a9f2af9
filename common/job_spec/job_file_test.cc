#include "common/job_spec/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/wall_time.h"
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

// A repeated submit with the same key sends the same text.
TEST(JobFile, ItsBeginIsResolvedOnceAndStaysAsItIs) {
  const auto job = ResolveJob({kJob, "job.yaml", "/"}, {"begin=now+2h"});
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_TRUE(job->relative_begin);
  const auto begin = ParseRfc3339(job->spec.begin);
  ASSERT_TRUE(begin) << job->spec.begin;
  const double ahead = static_cast<double>(*begin - SystemClock().UnixMillis()) / 1000;
  EXPECT_GT(ahead, 7100);
  EXPECT_LE(ahead, 7200);
  EXPECT_EQ(ParseJobSpec(job->yaml)->begin, job->spec.begin);
  const auto again = ResolveJob({job->yaml, "job.yaml", "/"}, {});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->yaml, job->yaml);
  EXPECT_FALSE(again->relative_begin);
  const auto local = ResolveJob({kJob, "job.yaml", "/"}, {"begin=2027-01-15"});
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_FALSE(local->relative_begin);
  EXPECT_TRUE(ParseRfc3339(local->spec.begin)) << local->spec.begin;
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
