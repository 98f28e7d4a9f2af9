#include "cli/top/top_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/output.h"
#include "cli/jobs/job_json.h"
#include "common/base/json.h"

namespace muster {
namespace {

const v1::RankProgress* First(const v1::Job& job) {
  for (const auto& progress : job.progress())
    if (progress.rank() == 0) return &progress;
  return nullptr;
}

void NoteStep(const v1::Job& job, std::int64_t now, JobHistory* history) {
  if (history->state != job.state()) {
    history->state = job.state();
    history->state_since_unix_ms = now;
    history->step_since_unix_ms = now;  // what it was silent for, it did not run
  }
  if (history->step == job.step()) return;
  history->step = job.step();
  history->step_since_unix_ms = now;
  if (job.step() > 0 && HasLoss(job)) history->loss.Add(job.step(), job.loss());
}

// When the state of a job began, as its attempts report; 0: they do not.
std::int64_t BegunUnixMs(const v1::Job& job) {
  if (job.attempts().empty()) return 0;
  const v1::AttemptInfo& newest = *job.attempts().rbegin();
  if (job.state() == v1::JOB_STATE_STARTING) return newest.started_unix_ms();
  if (job.state() != v1::JOB_STATE_RECOVERING || newest.state() == "aborting") return 0;
  if (newest.ended_unix_ms() > 0) return newest.ended_unix_ms();
  return job.attempts_size() < 2 ? 0 : job.attempts(job.attempts_size() - 2).ended_unix_ms();
}

double SecondsSince(std::int64_t begun, std::int64_t now) {
  return static_cast<double>(std::max<std::int64_t>(0, now - begun)) / 1000;
}

JobFacts::State StateOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_QUEUED: return JobFacts::State::kWaiting;
    case v1::JOB_STATE_STARTING: return JobFacts::State::kStarting;
    case v1::JOB_STATE_RUNNING: return JobFacts::State::kRunning;
    case v1::JOB_STATE_RECOVERING: return JobFacts::State::kRecovering;
    case v1::JOB_STATE_FAILED: return JobFacts::State::kFailed;
    default: return JobFacts::State::kOther;
  }
}

// What only the detail has: of the same attempt, or of checkpoints.
void AddDetail(const v1::Job& job, const v1::Job& detail, JobFacts* facts) {
  for (const auto& checkpoint : detail.checkpoints()) {
    if (checkpoint.refused().empty()) continue;
    ++facts->damaged_checkpoints;
    facts->damage = checkpoint.refused();
  }
  if (detail.generation() != job.generation()) return;
  std::map<int, const v1::RankProgress*> progress;
  for (const auto& each : detail.progress()) progress[each.rank()] = &each;
  for (const auto& rank : detail.ranks())
    if (const auto found = progress.find(rank.rank()); found != progress.end())
      facts->ranks.push_back({.rank = rank.rank(),
                              .node = rank.node(),
                              .step = found->second->step(),
                              .phase = PhaseWord(found->second->phase())});
}

JobFacts FactsOf(const v1::Job& job, const TopModel& model) {
  JobFacts facts;
  facts.state = StateOf(job.state());
  facts.id = job.id();
  facts.name = job.name();
  facts.reason = job.reason();
  facts.step = job.step();
  facts.loss = job.loss();
  if (const v1::SlowRank& slow = job.slow_rank(); job.has_slow_rank())
    facts.slow = {slow.rank(), slow.node(), slow.seconds(), slow.others_seconds()};
  if (job.state() == v1::JOB_STATE_FAILED) {
    facts.state_seconds = SecondsSince(job.ended_unix_ms(), model.now_unix_ms);
    return facts;
  }
  const auto found = model.histories.find(job.id());
  if (found == model.histories.end()) return facts;
  const JobHistory& history = found->second;
  facts.state_seconds = SecondsSince(history.state_since_unix_ms, model.now_unix_ms);
  facts.step_seconds = history.step_seconds.Median();
  if (facts.state == JobFacts::State::kRecovering && facts.reason.empty())
    facts.reason = history.cause;
  if (facts.state == JobFacts::State::kRunning)
    facts.silent_seconds = SecondsSince(history.step_since_unix_ms, model.now_unix_ms);
  if (history.detail) AddDetail(job, *history.detail, &facts);
  return facts;
}

}  // namespace

void TopModel::SetJobs(v1::ListJobsResponse answer, std::int64_t now) {
  now_unix_ms = now;
  std::set<std::string> listed;
  for (const v1::Job& job : answer.jobs()) {
    listed.insert(job.id());
    if (!IsTerminal(job.state())) NoteStep(job, now, &histories[job.id()]);
  }
  std::erase_if(histories, [&](const auto& entry) { return listed.count(entry.first) == 0; });
  jobs = std::move(answer);
}

std::uint64_t TrainingMemoryBytes(const v1::RankProgress& rank) {
  return rank.device_capacity_bytes() > 0 ? rank.device_bytes() : rank.rss_bytes();
}

void TopModel::SetOpen(v1::Job answer, std::int64_t now) {
  JobHistory& history = histories[answer.id()];
  std::uint64_t bytes = 0;
  for (const auto& progress : answer.progress())
    bytes = std::max(bytes, TrainingMemoryBytes(progress));
  if (const v1::RankProgress* first = First(answer); first && first->step() > 0 && bytes > 0)
    history.memory.Add(first->step(), static_cast<double>(bytes));
  open = answer;
  SetDetail(std::move(answer), now);
}

void TopModel::SetDetail(v1::Job answer, std::int64_t now) {
  now_unix_ms = now;
  JobHistory& history = histories[answer.id()];
  NoteStep(answer, now, &history);
  if (const std::int64_t begun = BegunUnixMs(answer); begun > 0)
    history.state_since_unix_ms = begun;
  for (const auto& attempt : answer.attempts())
    if (!attempt.cause().empty()) history.cause = attempt.cause();
  if (const v1::RankProgress* first = First(answer); first && first->step() > 0)
    history.step_seconds.Add(first->step(), first->step_seconds());
  // Only what AddDetail looks at is kept.
  answer.clear_attempts();
  answer.clear_spec_yaml();
  history.detail = std::move(answer);
}

std::string TopModel::NextForDetail(const std::string& last) const {
  std::set<std::string> under_way;
  for (const v1::Job& job : jobs.jobs())
    if (!IsTerminal(job.state()) && job.state() != v1::JOB_STATE_QUEUED) under_way.insert(job.id());
  if (under_way.empty()) return "";
  const auto next = under_way.upper_bound(last);
  return next == under_way.end() ? *under_way.begin() : *next;
}

void TopModel::SetLost(std::string_view message, std::int64_t now) {
  static constexpr std::string_view kNext = "next: ";
  if (lost.empty()) lost_since_unix_ms = now;
  now_unix_ms = now;
  lost = message.substr(0, message.find('\n'));
  const std::size_t next = message.find(kNext);
  lost_next = next == std::string_view::npos ? "" : message.substr(next + kNext.size());
  lost_next = lost_next.substr(0, lost_next.find('\n'));
}

void AddMetricsFile(std::string_view text, JobHistory* history) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    const auto json = nlohmann::json::parse(text.substr(0, end), nullptr, /*exceptions=*/false);
    text.remove_prefix(end + 1);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const auto step = json["step"].get<std::int64_t>();
    const auto number = [&](const char* key) {
      return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
    };
    history->loss.Add(step, number("loss"));
    history->step_seconds.Add(step, number("step_seconds"));
  }
}

std::vector<Problem> FindProblems(const TopModel& model) {
  std::vector<Problem> problems;
  if (!model.lost.empty())
    problems.push_back({ProblemKind::kNoAnswer,
                        "no answer for " +
                            LastingText(SecondsSince(model.lost_since_unix_ms, model.now_unix_ms)) +
                            "; the view is out of date: " + model.lost,
                        model.lost_next,
                        {}});
  for (const v1::Job& job : model.jobs.jobs()) FindJobProblems(FactsOf(job, model), &problems);
  for (const v1::Node& node : model.nodes.nodes()) {
    const std::string word = ShellWord(node.name());
    const std::string state = StateWord(node.state());
    NodeFacts facts;
    if (node.state() == v1::NODE_STATE_LOST || node.state() == v1::NODE_STATE_SUSPECT)
      facts.state = NodeFacts::State::kGone;
    if (node.state() == v1::NODE_STATE_QUARANTINED) facts.state = NodeFacts::State::kQuarantined;
    facts.state_word = state;
    facts.name = node.name();
    facts.shell_name = word;
    facts.reason = node.reason();
    if (node.notices_size() > 0) facts.notice = node.notices(0);
    FindNodeProblems(facts, &problems);
  }
  SortProblems(&problems);
  for (Problem& problem : problems) {
    problem.text = Printable(problem.text);
    problem.command = Printable(problem.command);
  }
  return problems;
}

}  // namespace muster
