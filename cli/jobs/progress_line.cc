#include "cli/jobs/progress_line.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/terminal.h"
#include "cli/jobs/job_json.h"

namespace muster {
namespace {

constexpr int kBarCells = 20;

int RunningRanks(const v1::Job& job) {
  int running = 0;
  for (const auto& rank : job.ranks()) running += rank.state() == v1::RANK_STATE_RUNNING ? 1 : 0;
  return running;
}

std::string RankCount(const v1::Job& job) {
  if (job.ranks().empty()) return "";
  return "ranks " + std::to_string(RunningRanks(job)) + "/" + std::to_string(job.ranks_size());
}

std::string PhaseOfRanks(const v1::Job& job) {
  if (RunningRanks(job) == 0) return "";
  // The phase most ranks are in; phases change too fast to show each.
  std::map<v1::TrainPhase, int> phases;
  for (const auto& progress : job.progress())
    if (progress.phase() != v1::TRAIN_PHASE_UNSPECIFIED) ++phases[progress.phase()];
  const auto most =
      std::max_element(phases.begin(), phases.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == phases.end() ? "" : PhaseWord(most->first);
}

// No rank runs, and the reason explains why.
bool StandsStill(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_SUSPENDED;
}

std::string EventLine(const v1::Event& event, bool color) {
  std::string line = LocalClock(event.unix_ms()) + "  " + Printable(event.message());
  if (!color || event.severity() == "info" || event.severity().empty()) return line;
  return (event.severity() == "error" ? "\x1b[31m" : "\x1b[33m") + line + "\x1b[0m";
}

// The parts of a line in their order; empty ones are not known, or left out.
struct Parts {
  std::string bar, step, loss, speed, eta, state, ranks, phase;

  std::string Line() const {
    std::string out;
    for (const std::string* part : {&bar, &step, &loss, &speed, &eta, &state, &ranks})
      if (!part->empty()) out += (out.empty() ? "" : "  ") + *part;
    if (!ranks.empty() && !phase.empty()) out += " " + phase;
    return out;
  }
};

Parts PartsOf(const v1::Job& job) {
  Parts parts;
  if (job.step() > 0 || job.max_steps() > 0) parts.step = "step " + std::to_string(job.step());
  if (job.max_steps() > 0) parts.step += "/" + std::to_string(job.max_steps());
  if (HasLoss(job)) parts.loss = "loss " + LossText(job.loss(), 3);
  if (job.tokens_per_second() > 0) parts.speed = Fixed(job.tokens_per_second(), 0) + " tok/s";
  if (job.eta_seconds() >= 0 && !IsTerminal(job.state()) && job.step() > 0)
    parts.eta = "eta " + HumanSeconds(job.eta_seconds());
  parts.state = StateWord(job.state());
  if (StandsStill(job)) {
    if (!job.reason().empty()) parts.state += ": " + Printable(job.reason());
  } else if (!IsTerminal(job.state())) {
    parts.ranks = RankCount(job);
    parts.phase = PhaseOfRanks(job);
  }
  return parts;
}

}  // namespace

std::string ProgressText(const v1::Job& job) { return PartsOf(job).Line(); }

std::string ProgressBar(const v1::Job& job, int cells) {
  if (job.max_steps() <= 0 || cells <= 0) return "";
  const double part =
      std::clamp(static_cast<double>(job.step()) / static_cast<double>(job.max_steps()), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(part * cells);
  return "[" + std::string(full, '#') + std::string(static_cast<std::size_t>(cells) - full, '.') +
         "]";
}

std::string ProgressLine(const v1::Job& job, std::size_t width) {
  Parts parts = PartsOf(job);
  parts.bar = ProgressBar(job, kBarCells);
  const std::string half_bar = ProgressBar(job, kBarCells / 2);
  const std::pair<std::string*, std::string_view> less[] = {
      {&parts.phase, ""}, {&parts.ranks, ""}, {&parts.bar, half_bar},
      {&parts.speed, ""}, {&parts.bar, ""},   {&parts.loss, ""}};
  std::string line = parts.Line();
  for (const auto& [part, shorter] : less) {
    if (TextWidth(line) <= width) return line;
    *part = shorter;
    line = parts.Line();
  }
  return CutText(line, width);
}

void ProgressPrinter::Clear() {
  if (live_.empty()) return;
  out_ << "\r\x1b[K";
  live_.clear();
}

void ProgressPrinter::OnJob(const v1::Job& job, TimePoint now) {
  const std::string text = ProgressText(job);
  if (options_.live) {
    const int columns = options_.columns ? options_.columns() : 80;
    const std::string line = ProgressLine(job, static_cast<std::size_t>(std::max(columns - 1, 20)));
    if (line == live_) return;
    out_ << "\r" << line << "\x1b[K" << std::flush;
    live_ = line;
    return;
  }
  if (!WantsLine(job, text, now)) return;
  out_ << text << '\n' << std::flush;
  last_text_ = text;
  last_line_step_ = job.step();
  last_line_at_ = now;
  last_state_ = job.state();
}

bool ProgressPrinter::WantsLine(const v1::Job& job, const std::string& text, TimePoint now) const {
  if (job.state() != last_state_) return true;
  if (options_.states_only) return false;
  const std::int64_t every = std::max<std::int64_t>(options_.line_every_steps, 1);
  const bool crossed = job.step() / every != last_line_step_ / every || last_line_step_ < 0;
  const bool due = now - last_line_at_ >= options_.line_at_least && text != last_text_;
  return (crossed && job.step() != last_line_step_) || due;
}

void ProgressPrinter::OnEvent(const v1::Event& event) {
  OnNotice(EventLine(event, options_.color));
}

void ProgressPrinter::OnNotice(const std::string& text) {
  const std::string live = live_;
  Clear();
  out_ << text << '\n';
  if (options_.live && !live.empty()) {
    out_ << live;
    live_ = live;
  }
  out_ << std::flush;
}

void ProgressPrinter::Finish() {
  if (!live_.empty()) out_ << '\n' << std::flush;
  live_.clear();
}

}  // namespace muster
