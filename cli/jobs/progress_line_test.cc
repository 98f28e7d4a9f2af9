#include "cli/jobs/progress_line.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <ctime>
#include <sstream>

#include "cli/base/output.h"
#include "cli/jobs/testing/canned_job.h"

namespace muster {
namespace {

TimePoint At(double seconds) { return TimePoint{} + std::chrono::hours(1) + FromSeconds(seconds); }

v1::Job JobAtStep(std::int64_t step) {
  v1::Job job = CannedJob();
  job.set_step(step);
  return job;
}

v1::Event Killed() {
  v1::Event event;
  event.set_seq(5);
  event.set_unix_ms(1'700'000'041'000);
  event.set_severity("warning");
  event.set_message("rank 1 was killed by SIGKILL");
  return event;
}

TEST(ProgressText, PrintsWhatIsKnown) {
  EXPECT_EQ(ProgressText(CannedJob()),
            "step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running  ranks 2/2 forward");
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_eta_seconds(-1);
  EXPECT_EQ(ProgressText(job), "queued");
  job.set_max_steps(200);
  job.set_reason("no node is ready");
  EXPECT_EQ(ProgressText(job), "step 0/200  queued: no node is ready");
}

TEST(ProgressBar, FillsWithTheSteps) {
  EXPECT_EQ(ProgressBar(JobAtStep(0), 4), "[....]");
  EXPECT_EQ(ProgressBar(JobAtStep(120), 10), "[######....]");
  EXPECT_EQ(ProgressBar(JobAtStep(900), 4), "[####]");
  v1::Job unknown = JobAtStep(1);
  unknown.set_max_steps(0);
  EXPECT_EQ(ProgressBar(unknown, 4), "");
}

TEST(ProgressLine, LeavesOutWhatIsNeededLeast) {
  const v1::Job job = CannedJob();
  EXPECT_EQ(
      ProgressLine(job, 120),
      "[############........]  step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running  ranks "
      "2/2 forward");
  EXPECT_EQ(ProgressLine(job, 85),
            "[############........]  step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running");
  EXPECT_EQ(ProgressLine(job, 79),
            "[######....]  step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running");
  EXPECT_EQ(ProgressLine(job, 60), "[######....]  step 120/200  loss 2.500  eta 1m 05s  running");
  EXPECT_EQ(ProgressLine(job, 50), "step 120/200  loss 2.500  eta 1m 05s  running");
  EXPECT_EQ(ProgressLine(job, 40), "step 120/200  eta 1m 05s  running");
  EXPECT_EQ(ProgressLine(job, 30), "step 120/200  eta 1m 05s  runn");
}

// Numbers of a long run of a large model, on the usual terminal.
TEST(ProgressLine, StateAndTimeToGoFitIn80Columns) {
  v1::Job job = CannedJob();
  job.set_step(1'204'380);
  job.set_max_steps(2'400'000);
  job.set_tokens_per_second(12'345'678);
  job.set_eta_seconds(23 * 24 * 3600);
  job.set_state(v1::JOB_STATE_RECOVERING);
  const std::string line = ProgressLine(job, 79);
  EXPECT_LE(line.size(), 79u);
  EXPECT_NE(line.find("step 1204380/2400000"), std::string::npos) << line;
  EXPECT_NE(line.find("eta "), std::string::npos) << line;
  EXPECT_NE(line.find("recovering"), std::string::npos) << line;
}

TEST(ProgressLine, NeverCutsACharacterInTwo) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_reason("für ein größeres Modell fehlen Knoten");
  for (std::size_t width = 1; width < 40; ++width) {
    const std::string line = ProgressLine(job, width);
    EXPECT_EQ(Printable(line), line) << width;
  }
}

TEST(ProgressPrinter, TakesTheWidthThatTheTerminalHasNow) {
  std::ostringstream out;
  int columns = 120;
  ProgressPrinter printer(out, {.live = true, .columns = [&] { return columns; }});
  printer.OnJob(JobAtStep(120), At(0));
  EXPECT_NE(out.str().find("ranks 2/2"), std::string::npos) << out.str();
  columns = 41;
  out.str("");
  printer.OnJob(JobAtStep(120), At(1));
  EXPECT_EQ(out.str(), "\rstep 120/200  eta 1m 05s  running\x1b[K");
}

TEST(ProgressPrinter, WritesPlainLinesPerLoggingStepOrAfterAWhile) {
  std::ostringstream out;
  ProgressPrinter printer(out, {.line_every_steps = 10, .line_at_least = std::chrono::seconds(5)});
  const auto lines = [&] {
    std::int64_t n = 0;
    for (const char c : out.str()) n += c == '\n' ? 1 : 0;
    return n;
  };
  printer.OnJob(JobAtStep(1), At(0));
  EXPECT_EQ(lines(), 1);
  printer.OnJob(JobAtStep(2), At(1));
  printer.OnJob(JobAtStep(9), At(2));
  EXPECT_EQ(lines(), 1);
  printer.OnJob(JobAtStep(10), At(3));
  EXPECT_EQ(lines(), 2);
  printer.OnJob(JobAtStep(10), At(4));
  EXPECT_EQ(lines(), 2);
  printer.OnJob(JobAtStep(12), At(8));
  EXPECT_EQ(lines(), 3);
  printer.OnJob(JobAtStep(12), At(60));  // nothing new to say
  EXPECT_EQ(lines(), 3);
  v1::Job done = JobAtStep(12);
  done.set_state(v1::JOB_STATE_SUCCEEDED);
  printer.OnJob(done, At(61));
  EXPECT_EQ(lines(), 4);
}

TEST(ProgressPrinter, WritesALineForEachStateWhereOnlyThoseAreWanted) {
  std::ostringstream out;
  ProgressPrinter printer(out, {.line_every_steps = 1, .states_only = true});
  v1::Job job = JobAtStep(0);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.clear_loss();
  job.clear_loss_at_start();
  job.clear_tokens_per_second();
  job.set_reason("no node is ready");
  printer.OnJob(job, At(0));
  job.set_reason("needs 2 nodes");
  printer.OnJob(job, At(60));
  printer.OnJob(JobAtStep(120), At(61));
  printer.OnJob(JobAtStep(130), At(120));
  job = JobAtStep(200);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  printer.OnJob(job, At(121));
  EXPECT_EQ(out.str(),
            "step 0/200  queued: no node is ready\n"
            "step 120/200  loss 2.500  1234 tok/s  eta 1m 05s  running  ranks 2/2 forward\n"
            "step 200/200  loss 2.500  1234 tok/s  succeeded\n");
}

TEST(ProgressPrinter, ANewStateIsALineAtOnce) {
  std::ostringstream out;
  ProgressPrinter printer(out, {.line_every_steps = 1000});
  v1::Job job = JobAtStep(1);
  job.set_state(v1::JOB_STATE_RECOVERING);
  printer.OnJob(JobAtStep(1), At(0));
  printer.OnJob(job, At(1));
  EXPECT_NE(out.str().find("recovering"), std::string::npos) << out.str();
}

TEST(ProgressPrinter, KeepsTheLiveLineBelowEvents) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  std::ostringstream out;
  ProgressPrinter printer(out, {.live = true, .columns = [] { return 31; }});
  printer.OnJob(JobAtStep(120), At(0));
  EXPECT_EQ(out.str(), "\rstep 120/200  eta 1m 05s  runn\x1b[K");  // cut to the terminal
  out.str("");
  printer.OnJob(JobAtStep(120), At(1));
  EXPECT_EQ(out.str(), "");
  printer.OnEvent(Killed());
  EXPECT_EQ(out.str(),
            "\r\x1b[K22:14:01  rank 1 was killed by SIGKILL\nstep 120/200  eta 1m 05s  runn");
  out.str("");
  printer.Finish();
  printer.Finish();
  EXPECT_EQ(out.str(), "\n");
}

TEST(ProgressPrinter, WithoutATerminalThereIsNoEscape) {
  std::ostringstream out;
  ProgressPrinter printer(out, {});
  printer.OnJob(CannedJob(), At(0));
  printer.OnEvent(Killed());
  printer.Finish();
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
  EXPECT_EQ(out.str().find('\r'), std::string::npos);
}

}  // namespace
}  // namespace muster
