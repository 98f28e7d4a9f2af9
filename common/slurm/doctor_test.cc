#include "common/slurm/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace muster::slurm {
namespace {

// Of `scontrol show config` as 22.05.8 printed it, without what nothing asks for.
constexpr char kDebian[] =
    "Configuration data as of 2026-11-22T22:06:21\n"
    "AuthInfo                = socket=/run/munge.socket,cred_expire=5\n"
    "GresTypes               = gpu\n"
    "JobRequeue              = 1\n"
    "KillWait                = 30 sec\n"
    "MinJobAge               = 300 sec\n"
    "PreemptMode             = OFF\n"
    "PreemptType             = preempt/none\n"
    "ProctrackType           = proctrack/linuxproc\n"
    "RequeueExit             = (null)\n"
    "RequeueExitHold         = (null)\n"
    "SchedulerParameters     = (null)\n"
    "SlurmctldParameters     = (null)\n"
    "SlurmdTimeout           = 10 sec\n"
    "SLURM_VERSION           = 22.05.8\n"
    "SrunPortRange           = 0-0\n"
    "TaskPlugin              = task/none\n";

// The defaults of 25.11: preemption has parameters of its own, and plug-ins are (null).
constexpr char kNewest[] =
    "AuthInfo                = (null)\n"
    "GresTypes               = gpu\n"
    "JobRequeue              = 1\n"
    "KillWait                = 30 sec\n"
    "MaxBatchRequeue         = 5\n"
    "MinJobAge               = 300 sec\n"
    "PreemptMode             = OFF\n"
    "PreemptParameters       = (null)\n"
    "PreemptType             = (null)\n"
    "ProctrackType           = proctrack/cgroup\n"
    "RequeueExit             = (null)\n"
    "SchedulerParameters     = enable_expedited_requeue,requeue_delay=5\n"
    "SlurmdTimeout           = 300 sec\n"
    "SLURM_VERSION           = 25.11.4\n"
    "SrunPortRange           = 60001-63000\n"
    "TaskPlugin              = task/affinity\n"
    "\nCgroup Support Configuration:\n"
    "ConstrainDevices        = yes\n";

constexpr char kPartitions[] =
    "PartitionName=main Default=YES GraceTime=0 MaxTime=01:00:00 PreemptMode=OFF State=UP\n"
    "PartitionName=low Default=NO GraceTime=120 MaxTime=UNLIMITED PreemptMode=REQUEUE State=UP\n";

DoctorQuestion Question(const std::string& config = kDebian) {
  return {.config = ParseConfig(config),
          .partitions = ParsePartitions(kPartitions),
          .partition = "",
          .checkpoint_seconds = std::nullopt};
}

const Finding* Find(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&check](const Finding& one) { return one.check == check; });
  return found == findings.end() ? nullptr : &*found;
}

Verdict Of(const DoctorQuestion& question, const std::string& check) {
  const auto findings = JudgeSettings(question);
  const Finding* finding = Find(findings, check);
  EXPECT_NE(finding, nullptr) << check;
  return finding == nullptr ? Verdict::kOk : finding->verdict;
}

DoctorQuestion With(DoctorQuestion question, const Settings& changes) {
  for (const auto& [key, value] : changes) question.config[key] = value;
  return question;
}

TEST(Doctor, FindsNothingToFailInASoundConfiguration) {
  for (const char* config : {kDebian, kNewest})
    for (const Finding& finding : JudgeSettings(Question(config))) {
      EXPECT_NE(finding.verdict, Verdict::kFail) << finding.check << ": " << finding.what;
      EXPECT_TRUE(finding.verdict == Verdict::kOk || !finding.change.empty()) << finding.check;
    }
}

TEST(Doctor, ReadsTheReleases) {
  EXPECT_EQ(Of(With(Question(), {{"SLURM_VERSION", "19.05.5"}}), "version"), Verdict::kFail);
  EXPECT_EQ(Of(With(Question(), {{"SLURM_VERSION", "20.11.6"}}), "version"), Verdict::kWarn);
  EXPECT_EQ(Of(Question(), "version"), Verdict::kOk);
  EXPECT_EQ(Of(With(Question(), {{"SLURM_VERSION", ""}}), "version"), Verdict::kFail);
  const auto newest = JudgeSettings(Question(kNewest));
  EXPECT_NE(Find(newest, "version")->change.find("--requeue=expedite"), std::string::npos);
  const auto without =
      JudgeSettings(With(Question(kNewest), {{"SchedulerParameters", "requeue_delay=5"}}));
  EXPECT_EQ(Find(without, "version")->change, "");
}

TEST(Doctor, ReportsHowLongARequeueWaits) {
  EXPECT_EQ(Of(Question(), "requeue-delay"), Verdict::kOk);
  EXPECT_EQ(Of(Question(kNewest), "requeue-delay"), Verdict::kOk);
  const auto slow = JudgeSettings(With(Question(), {{"AuthInfo", "socket=/run/munge.socket"}}));
  EXPECT_EQ(Find(slow, "requeue-delay")->verdict, Verdict::kWarn);
  EXPECT_NE(Find(slow, "requeue-delay")->what.find("120 s"), std::string::npos);
  EXPECT_NE(Find(slow, "requeue-delay")->change.find("cred_expire=30"), std::string::npos);
  EXPECT_EQ(Of(With(Question(), {{"RequeueExitHold", "1,75"}}), "requeue-exit"), Verdict::kFail);
  EXPECT_EQ(Of(With(Question(), {{"RequeueExit", "75"}}), "requeue-exit"), Verdict::kOk);
}

TEST(Doctor, ReportsHowLongADeadNodeIsHeld) {
  EXPECT_EQ(Of(Question(), "slurmd-timeout"), Verdict::kOk);
  EXPECT_EQ(Of(Question(kNewest), "slurmd-timeout"), Verdict::kWarn);
  EXPECT_EQ(Of(With(Question(), {{"SlurmdTimeout", "0 sec"}}), "slurmd-timeout"), Verdict::kWarn);
}

TEST(Doctor, HoldsTimesAgainstThatOfACheckpoint) {
  DoctorQuestion question = Question();
  question.checkpoint_seconds = 25;
  EXPECT_EQ(Of(question, "kill-wait"), Verdict::kWarn);
  question.checkpoint_seconds = 15;
  EXPECT_EQ(Of(question, "kill-wait"), Verdict::kOk);
  question.checkpoint_seconds = 100;
  const auto findings = JudgeSettings(question);
  ASSERT_NE(Find(findings, "signal-lead"), nullptr);
  EXPECT_NE(Find(findings, "signal-lead")->change.find("--signal-lead=260"), std::string::npos);
  question.signal_lead_seconds = 260;
  EXPECT_EQ(Find(JudgeSettings(question), "signal-lead"), nullptr);
  EXPECT_EQ(Of(With(Question(), {{"KillWait", "5 sec"}}), "kill-wait"), Verdict::kWarn);
  // Supervisors use 15 s of 20, and no more than 25 of 120 unless configured to.
  question.checkpoint_seconds = 12;
  EXPECT_EQ(Of(question, "kill-wait"), Verdict::kOk);
  EXPECT_EQ(Of(With(question, {{"KillWait", "20 sec"}}), "kill-wait"), Verdict::kWarn);
  question.checkpoint_seconds = 60;
  EXPECT_EQ(Find(JudgeSettings(With(question, {{"KillWait", "120 sec"}})), "kill-wait")->change,
            "submit with --worker-arg=--term-grace=115");
}

TEST(Doctor, ReportsWhatAPreemptionDoes) {
  EXPECT_EQ(Of(Question(), "preemption"), Verdict::kOk);
  DoctorQuestion low = With(Question(), {{"PreemptType", "preempt/partition_prio"}});
  low.partition = "low";
  EXPECT_EQ(Of(low, "preemption"), Verdict::kOk);
  EXPECT_EQ(Of(low, "grace-time"), Verdict::kOk);
  EXPECT_NE(Find(JudgeSettings(low), "preempt-signal")->what.find("gets SIGTERM"),
            std::string::npos);
  low.partitions["low"]["GraceTime"] = "0";
  EXPECT_EQ(Of(low, "grace-time"), Verdict::kWarn);
  low.partitions["low"]["PreemptMode"] = "CANCEL";
  EXPECT_EQ(Of(low, "preemption"), Verdict::kWarn);
  low.partitions["low"]["PreemptMode"] = "GANG,SUSPEND";
  EXPECT_EQ(Of(low, "preemption"), Verdict::kWarn);
  for (const auto& [key, value] : Settings{{"SlurmctldParameters", "preempt_send_user_signal"},
                                           {"PreemptParameters", "a,send_user_signal"}})
    EXPECT_NE(Find(JudgeSettings(With(low, {{key, value}})), "preempt-signal")
                  ->what.find("gets the signal of --signal first"),
              std::string::npos)
        << key;
}

TEST(Doctor, ChecksThePartitionOfTheJob) {
  DoctorQuestion question = Question();
  EXPECT_EQ(Of(question, "time-limit"), Verdict::kOk);
  question.signal_lead_seconds = 2000;
  EXPECT_EQ(Of(question, "time-limit"), Verdict::kFail);
  question.partition = "low";
  EXPECT_EQ(Of(question, "time-limit"), Verdict::kOk);
  question.partition = "none";
  EXPECT_EQ(Of(question, "partition"), Verdict::kFail);
}

TEST(Doctor, ReportsHowProcessesAndDevicesAreKept) {
  EXPECT_EQ(Of(Question(), "process-tracking"), Verdict::kWarn);
  EXPECT_EQ(Of(Question(kNewest), "process-tracking"), Verdict::kOk);
  EXPECT_EQ(Of(Question(), "gpu-isolation"), Verdict::kWarn);
  EXPECT_EQ(Of(Question(kNewest), "gpu-isolation"), Verdict::kOk);
  EXPECT_EQ(Of(Question(kNewest), "srun-ports"), Verdict::kWarn);
  EXPECT_EQ(Find(JudgeSettings(Question()), "srun-ports"), nullptr);
}

}  // namespace
}  // namespace muster::slurm
