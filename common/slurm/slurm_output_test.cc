#include "common/slurm/slurm_output.h"

#include <gtest/gtest.h>

namespace muster::slurm {
namespace {

// What squeue 22.05 printed for a waiting, a running and a foreign job.
constexpr char kJobList[] =
    "2\x1f"
    "2\x1f"
    "my-job\x1froot\x1fPENDING\x1fJobHeldUser\x1f\x1f"
    "2\x1fn/a\x1fN/A\x1fN/A\x1fmuster key=k1 \"quoted\" text\n"
    "squeue: error: a warning between the lines\n"
    "41\x1f"
    "40_1\x1fother|name\x1f"
    "ann\x1fRUNNING\x1fNone\x1fn[2-3]\x1f"
    "2\x1fn2\x1f"
    "2026-11-22T22:06:20\x1f"
    "2026-11-22T22:11:20\x1f(null)\n";

TEST(JobList, IsReadWithEveryText) {
  const auto jobs = ParseJobList(kJobList);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].id, 2u);
  EXPECT_EQ(jobs[0].name, "my-job");
  EXPECT_EQ(jobs[0].state, "PENDING");
  EXPECT_EQ(jobs[0].reason, "JobHeldUser");
  EXPECT_EQ(jobs[0].nodes, "");
  EXPECT_EQ(jobs[0].batch_host, "");
  EXPECT_EQ(jobs[0].end_unix_seconds, std::nullopt);
  EXPECT_EQ(jobs[0].comment, "muster key=k1 \"quoted\" text");
  EXPECT_EQ(jobs[1].id, 41u);
  EXPECT_EQ(jobs[1].shown_id, "40_1");
  EXPECT_EQ(jobs[0].ref().text(), "2");
  EXPECT_EQ(jobs[1].ref().text(), "40_1");
  EXPECT_TRUE(jobs[1].in_array());
  EXPECT_EQ(jobs[1].name, "other|name");
  EXPECT_EQ(jobs[1].reason, "");
  EXPECT_EQ(jobs[1].nodes, "n[2-3]");
  EXPECT_EQ(jobs[1].node_count, 2);
  EXPECT_EQ(jobs[1].batch_host, "n2");
  EXPECT_EQ(jobs[1].start_unix_seconds, 1795385180);
  EXPECT_EQ(*jobs[1].end_unix_seconds - *jobs[1].start_unix_seconds, 300);
  EXPECT_EQ(jobs[1].comment, "");
  EXPECT_TRUE(ParseJobList("").empty());
}

TEST(JobList, RequestsAsManyFieldsAsAreRead) {
  EXPECT_EQ(JobListFormat().substr(0, 5), "%A\x1f%i");
  std::string line = JobListFormat();
  line.replace(0, 2, "7");
  EXPECT_EQ(ParseJobList(line).at(0).comment, "%k");
  line.resize(line.rfind('\x1f'));
  EXPECT_TRUE(ParseJobList(line).empty());
}

TEST(JobDetails, AreReadFromOneLineOfEachRelease) {
  // 22.05, running.
  const auto job = ParseJobDetails(
      "JobId=3 JobName=sig UserId=root(0) JobState=RUNNING Reason=None Requeue=1 Restarts=2 "
      "BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:05:00 "
      "EndTime=2026-11-22T22:11:20 Partition=main ReqNodeList=(null) ExcNodeList=n[7,9] "
      "NodeList=n[1-2] BatchHost=n1 NumNodes=2 OverSubscribe=NO Comment=a Requeue=0 text Power= "
      "\n");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->id, 3u);
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_EQ(job->restarts, 2);
  EXPECT_TRUE(job->may_requeue);
  EXPECT_EQ(job->batch_host, "n1");
  EXPECT_EQ(job->nodes, "n[1-2]");
  EXPECT_EQ(job->excluded, "n[7,9]");
  EXPECT_TRUE(job->exclusive);
  EXPECT_EQ(job->end_unix_seconds, 1795385480);
  EXPECT_EQ(job->time_limit_seconds, 300);
  // 20.11, of salloc, without a limit; 25.05 says the same.
  const auto interactive = ParseJobDetails(
      "JobId=9 JobName=bash JobState=RUNNING Requeue=1 Restarts=0 BatchFlag=0 "
      "TimeLimit=UNLIMITED EndTime=Unknown ExcNodeList=(null) NodeList=n1\n");
  ASSERT_TRUE(interactive.ok());
  EXPECT_FALSE(interactive->may_requeue);
  EXPECT_FALSE(interactive->exclusive);
  EXPECT_EQ(interactive->batch_host, "");
  EXPECT_EQ(interactive->end_unix_seconds, std::nullopt);
  EXPECT_EQ(interactive->time_limit_seconds, std::nullopt);
  EXPECT_FALSE(ParseJobDetails("scontrol: nothing\n").ok());
}

TEST(Config, IsReadByKey) {
  const Settings settings = ParseConfig(
      "Configuration data as of 2026-11-22T22:06:21\n"
      "AuthInfo                = socket=/run/munge.socket,cred_expire=5\n"
      "KillWait                = 30 sec\n"
      "PreemptMode             = CANCEL,GANG\n"
      "SlurmctldHost[0]        = ctl(10.77.0.100)\n"
      "SLURM_VERSION           = 22.05.8\n"
      "\nCgroup Support Configuration:\nConstrainDevices        = yes\n"
      "\nSlurmctld(primary) at ctl is UP\n");
  EXPECT_EQ(settings.at("AuthInfo"), "socket=/run/munge.socket,cred_expire=5");
  EXPECT_EQ(settings.at("KillWait"), "30 sec");
  EXPECT_EQ(settings.at("PreemptMode"), "CANCEL,GANG");
  EXPECT_EQ(settings.at("ConstrainDevices"), "yes");
  EXPECT_EQ(settings.count("Slurmctld(primary) at ctl is UP"), 0u);
}

TEST(Partitions, AreReadByName) {
  const auto partitions = ParsePartitions(
      "PartitionName=main Default=YES GraceTime=0 MaxTime=01:00:00 PreemptMode=OFF State=UP\n"
      "PartitionName=low Default=NO GraceTime=120 MaxTime=UNLIMITED PreemptMode=REQUEUE\n");
  ASSERT_EQ(partitions.size(), 2u);
  EXPECT_EQ(partitions.at("main").at("Default"), "YES");
  EXPECT_EQ(partitions.at("low").at("GraceTime"), "120");
}

TEST(Submitted, IsTheNumberAmongWarnings) {
  EXPECT_EQ(*ParseSubmitted("42\n"), 42u);
  EXPECT_EQ(*ParseSubmitted("sbatch: warning: 3 nodes; more\n43;cluster\n"), 43u);
  EXPECT_FALSE(ParseSubmitted("Submitted batch job 42\n").ok());
}

TEST(Spans, AreSecondsInAllOfSlurmsForms) {
  EXPECT_EQ(ParseSpan("30 sec"), 30);
  EXPECT_EQ(ParseSpan("2 min"), 120);
  EXPECT_EQ(ParseSpan("300"), 300);
  EXPECT_EQ(ParseSpan("05:00"), 300);
  EXPECT_EQ(ParseSpan("01:00:00"), 3600);
  EXPECT_EQ(ParseSpan("2-00:00:01"), 172801);
  EXPECT_EQ(ParseSpan("1-12"), 129600);
  for (const char* none : {"UNLIMITED", "INFINITE", "NONE", "", "-1", "1:2:3:4", "5 days"})
    EXPECT_EQ(ParseSpan(none), std::nullopt) << none;
}

TEST(Times, AreUtc) {
  EXPECT_EQ(ParseTime("1970-01-02T00:00:01"), 86401);
  for (const char* none :
       {"N/A", "Unknown", "NONE", "", "2026-11-22 22:06:20", "2026-11-22T22:06:2x"})
    EXPECT_EQ(ParseTime(none), std::nullopt) << none;
}

TEST(Versions, AreOrdered) {
  EXPECT_EQ(ParseVersion("slurm-wlm 22.05.8"), (SlurmVersion{22, 5}));
  EXPECT_LT(*ParseVersion("22.05.8"), *ParseVersion("slurm 23.02.0-rc1"));
  EXPECT_EQ(ParseVersion("25.11.4"), (SlurmVersion{25, 11}));
  EXPECT_EQ(ParseVersion("unknown"), std::nullopt);
}

TEST(FinalStates, AreThoseThatNothingFollows) {
  EXPECT_TRUE(IsFinalState("COMPLETED"));
  EXPECT_TRUE(IsFinalState("NODE_FAIL"));
  for (const char* state : {"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"})
    EXPECT_FALSE(IsFinalState(state)) << state;
}

TEST(CommandFailure, NamesTheRemedy) {
  EXPECT_EQ(CommandFailure("squeue", "slurm_load_jobs error: Invalid job id specified\n").code(),
            StatusCode::kNotFound);
  EXPECT_NE(CommandFailure("squeue", "Unable to contact slurm controller")
                .message()
                .find("scontrol ping"),
            std::string::npos);
  EXPECT_EQ(CommandFailure("sbatch",
                           "sbatch: error: Batch job submission failed: Unable to contact "
                           "slurm controller (connect failure)")
                .code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(CommandFailure("sbatch",
                           "sbatch: error: Batch job submission failed: Socket timed out "
                           "on send/recv operation")
                .code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      CommandFailure("scancel", "Kill job error on job id 7: Access/permission denied").code(),
      StatusCode::kPermissionDenied);
  const Status rest = CommandFailure("sbatch", "sbatch: error: invalid partition specified: x\n");
  EXPECT_EQ(rest.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(rest.message(), "sbatch failed: sbatch: error: invalid partition specified: x");
}

TEST(TermGraceSeconds, LeavesTimeToReportTheEnd) {
  EXPECT_EQ(TermGraceSeconds(30), 25);
  EXPECT_EQ(TermGraceSeconds(20), 15);
  EXPECT_EQ(TermGraceSeconds(3), 2);
  EXPECT_EQ(TermGraceSeconds(0), 1);
}

}  // namespace
}  // namespace muster::slurm
