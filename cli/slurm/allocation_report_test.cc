#include "cli/slurm/allocation_report.h"

#include <gtest/gtest.h>

#include "cli/jobs/testing/canned_job.h"

namespace muster {
namespace {

TEST(AllocationReport, ShowsHowFarAJobIsAndHowItLastRecovered) {
  v1::Job job = CannedJob();
  v1::AttemptInfo* recovered = job.mutable_attempts(1);
  recovered->set_tier("spare");
  v1::StageSeconds* seconds = recovered->mutable_seconds();
  seconds->set_detect(0.5);
  seconds->set_abort(0.25);
  seconds->set_reform(1);
  seconds->set_load(0.25);
  seconds->set_first_step(-1);  // not over yet
  const AllocationReport report{job, 2, 3};
  EXPECT_EQ(ReportText(report),
            "running, step 120/200, loss 2.5000, 2 of 3 nodes ready, generation 2, recovered in "
            "2.0 s (spare)");
  const Json json = ReportJson(report);
  EXPECT_EQ(json.at("id"), "7f3a9c1e2b");
  EXPECT_EQ(json.at("nodes_ready"), 2);
  EXPECT_EQ(json.at("last_recovery"),
            (Json{{"generation", 2}, {"tier", "spare"}, {"seconds", 2.0}}));
}

TEST(AllocationReport, OmitsWhatIsNotKnown) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  const AllocationReport report{job, 0, 0};
  EXPECT_EQ(ReportText(report), "queued, step 0, 0 of 0 nodes ready, generation 0");
  EXPECT_EQ(ReportJson(report).at("loss"), nullptr);
  EXPECT_EQ(ReportJson(report).at("max_steps"), nullptr);
  EXPECT_EQ(ReportJson(report).at("last_recovery"), nullptr);
}

}  // namespace
}  // namespace muster
