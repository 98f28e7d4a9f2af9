#include "cli/progress_line.h"

#include <algorithm>
#include <map>

#include "cli/exit_code.h"
#include "cli/job_json.h"

namespace muster {
namespace {

std::string RankSummary(const v1::Job& job) {
  if (job.ranks().empty()) return "";
  int running = 0;
  for (const auto& rank : job.ranks()) running += rank.state() == v1::RANK_STATE_RUNNING ? 1 : 0;
  std::string out = "  ranks " + std::to_string(running) + "/" + std::to_string(job.ranks_size());
  if (running == 0) return out;
  // The phase most ranks are in; phases change too fast to show each.
  std::map<std::string, int> phases;
  for (const auto& progress : job.progress())
    if (!progress.phase().empty()) ++phases[progress.phase()];
  const auto most =
      std::max_element(phases.begin(), phases.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != phases.end()) out += " " + most->first;
  return out;
}

// Nothing of it runs, and only its reason tells when it goes on.
bool StandsStill(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_SUSPENDED;
}

std::string EventLine(const v1::Event& event, bool color) {
  std::string line = LocalClock(event.unix_ms()) + "  " + Printable(event.message());
  if (!color || event.severity() == "info" || event.severity().empty()) return line;
  return (event.severity() == "error" ? "\x1b[31m" : "\x1b[33m") + line + "\x1b[0m";
}

}  // namespace

std::string ProgressText(const v1::Job& job) {
  std::string out;
  if (job.step() > 0 || job.max_steps() > 0) out = "step " + std::to_string(job.step());
  if (job.max_steps() > 0) out += "/" + std::to_string(job.max_steps());
  if (HasLoss(job)) out += "  loss " + Fixed(job.loss(), 3);
  if (job.tokens_per_second() > 0) out += "  " + Fixed(job.tokens_per_second(), 0) + " tok/s";
  if (job.eta_seconds() >= 0 && !IsTerminal(job.state()) && job.step() > 0)
    out += "  eta " + HumanSeconds(job.eta_seconds());
  out += (out.empty() ? "" : "  ") + StateWord(job.state());
  if (StandsStill(job) && !job.reason().empty()) return out + ": " + Printable(job.reason());
  if (!IsTerminal(job.state())) out += RankSummary(job);
  return out;
}

std::string ProgressBar(const v1::Job& job, int cells) {
  if (job.max_steps() <= 0 || cells <= 0) return "";
  const double part =
      std::clamp(static_cast<double>(job.step()) / static_cast<double>(job.max_steps()), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(part * cells);
  return "[" + std::string(full, '#') + std::string(static_cast<std::size_t>(cells) - full, '.') +
         "]";
}

void ProgressPrinter::Clear() {
  if (live_.empty()) return;
  out_ << "\r\x1b[K";
  live_.clear();
}

void ProgressPrinter::OnJob(const v1::Job& job, TimePoint now) {
  const std::string text = ProgressText(job);
  if (options_.live) {
    const std::string bar = ProgressBar(job, 20);
    std::string line = bar.empty() ? text : bar + "  " + text;
    const auto width = static_cast<std::size_t>(std::max(options_.columns - 1, 20));
    if (line.size() > width) line.resize(width);
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
  last_seq_ = std::max(last_seq_, static_cast<std::int64_t>(event.seq()));
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
