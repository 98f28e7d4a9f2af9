// top: what the cluster does, or one job, in a terminal, until 'q'.

#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/top/terminal_screen.h"
#include "cli/top/top_model.h"
#include "cli/top/top_view.h"

namespace muster {
namespace {

constexpr std::streamoff kMetricsTail = 4 << 20;
constexpr int kKeptEvents = 20;
constexpr auto kCallLimit = std::chrono::seconds(2);
// A look asks for all jobs and nodes.
constexpr auto kLeastInterval = std::chrono::milliseconds(100);

// Braille is asked for only where the terminal's character set has it.
Glyphs TerminalGlyphs() {
  const char* before = std::setlocale(LC_CTYPE, "");
  const bool utf8 = before != nullptr && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  return utf8 ? Glyphs::kBraille : Glyphs::kAscii;
}

// The end of the run's metrics, where they lie on this machine or a shared file system.
void FillFromMetrics(const v1::Job& job, JobHistory* history) {
  if (job.output_dir().empty() || job.output_dir().front() != '/') return;
  std::ifstream in(job.output_dir() + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!in) return;
  const std::streamoff begin = std::max<std::streamoff>(0, in.tellg() - kMetricsTail);
  in.seekg(begin);
  std::string text(std::istreambuf_iterator<char>(in), {});
  AddMetricsFile(text, history);
}

class Top {
 public:
  Top(CommandContext& context, const TopOptions& options)
      : context_(context), job_(options.job), glyphs_(TerminalGlyphs()) {}

  // Asks for everything that is shown. An error: there is nothing to show.
  Status Refresh() {
    const Status status = Ask();
    model_.now_unix_ms = SystemClock().UnixMillis();
    if (status.ok()) {
      model_.lost.clear();
      seen_ = true;
      return status;
    }
    const bool passing =
        status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
    if (!seen_ || !passing) return status;
    model_.SetLost(status.message(), model_.now_unix_ms);
    context_.client.Disconnect();
    return OkStatus();
  }

  std::vector<std::string> Lines(int columns, int rows, bool keys) const {
    const TopViewOptions options{.columns = columns,
                                 .rows = rows,
                                 .glyphs = glyphs_,
                                 .color = context_.terminal.color,
                                 .keys = keys,
                                 .selected = selected_};
    return model_.open ? JobLines(model_, options) : OverviewLines(model_, options);
  }

  // False: the end.
  bool OnKey(TerminalKey key) {
    const std::vector<const v1::Job*> jobs = JobsInOrder(model_);
    const std::size_t last = jobs.empty() ? 0 : jobs.size() - 1;
    switch (key) {
      case TerminalKey::kNone: break;
      case TerminalKey::kQuit: return false;
      case TerminalKey::kUp: selected_ -= selected_ > 0 ? 1 : 0; break;
      case TerminalKey::kDown: selected_ = std::min(selected_ + 1, last); break;
      case TerminalKey::kTop: selected_ = 0; break;
      case TerminalKey::kBottom: selected_ = last; break;
      case TerminalKey::kEnter:
        if (!model_.open && selected_ <= last && !jobs.empty()) Show(jobs[selected_]->id());
        break;
      case TerminalKey::kBack: Show(""); break;
    }
    return true;
  }
  const std::string& job() const { return job_; }
  const TopModel& model() const { return model_; }

 private:
  void Show(const std::string& job) {
    job_ = job;
    model_.open.reset();
    model_.events.clear();
  }

  Status Ask() {
    ClusterClient& client = context_.client;
    if (model_.cluster.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const v1::VersionResponse version, client.Version());
      model_.cluster = version.cluster();
    }
    MUSTER_ASSIGN_OR_RETURN(v1::ListJobsResponse jobs, client.ListJobs(/*all=*/false));
    MUSTER_ASSIGN_OR_RETURN(model_.nodes, client.ListNodes());
    const std::int64_t now = SystemClock().UnixMillis();
    for (const v1::Job& job : jobs.jobs())
      if (!IsTerminal(job.state()) && model_.histories.count(job.id()) == 0)
        FillFromMetrics(job, &model_.histories[job.id()]);
    model_.SetJobs(std::move(jobs), now);
    MUSTER_RETURN_IF_ERROR(AskForDetail());
    return job_.empty() ? OkStatus() : AskForJob();
  }

  // Of one job at a look, so that it costs the same however many there are.
  Status AskForDetail() {
    detailed_ = model_.NextForDetail(detailed_);
    if (detailed_.empty()) return OkStatus();
    Result<v1::Job> job = context_.client.GetJob(detailed_);
    if (job.status().code() == StatusCode::kNotFound) return OkStatus();
    MUSTER_RETURN_IF_ERROR(job.status());
    model_.SetDetail(*std::move(job), SystemClock().UnixMillis());
    return OkStatus();
  }

  Status AskForJob() {
    MUSTER_ASSIGN_OR_RETURN(v1::Job job, context_.client.GetJob(job_));
    job_ = job.id();  // a newer one of the same name does not take over
    if (model_.histories.count(job_) == 0) FillFromMetrics(job, &model_.histories[job_]);
    model_.SetOpen(std::move(job), SystemClock().UnixMillis());
    return AskForEvents();
  }

  // All since the last ones, a part at a time; the newest are kept.
  Status AskForEvents() {
    for (;;) {
      v1::ListEventsRequest request;
      request.set_job(job_);
      request.set_after_seq(model_.events.empty() ? 0 : model_.events.back().seq());
      MUSTER_ASSIGN_OR_RETURN(const v1::ListEventsResponse events,
                              context_.client.ListEvents(request));
      if (events.events().empty()) return OkStatus();
      model_.events.insert(model_.events.end(), events.events().begin(), events.events().end());
      if (model_.events.size() > kKeptEvents)
        model_.events.erase(model_.events.begin(), model_.events.end() - kKeptEvents);
    }
  }

  CommandContext& context_;
  std::string job_;  // whose page is shown; empty: the overview
  const Glyphs glyphs_;
  TopModel model_;
  std::string detailed_;  // the job that was asked for in detail last
  std::size_t selected_ = 0;
  bool seen_ = false;
};

CommandResult ShowOnce(CommandContext& context, const TopOptions& options, Top& top) {
  Terminal& terminal = context.terminal;
  const bool stream = context.output == OutputFormat::kJsonl && !options.once;
  for (;;) {
    MUSTER_RETURN_IF_ERROR(top.Refresh());
    if (!PrintStructured(terminal.out, context.output, TopJson(top.model()), "cluster"))
      for (const std::string& line : top.Lines(terminal.columns, 0, /*keys=*/false))
        terminal.out << line << '\n';
    terminal.out.flush();
    if (!stream || !terminal.out || context.interrupt().WaitFor(options.interval))
      return kExitSuccess;
  }
}

CommandResult ShowLive(CommandContext& context, const TopOptions& options, Top& top) {
  // Before the screen is taken: what cannot be shown at all is said where it stays.
  MUSTER_RETURN_IF_ERROR(top.Refresh());
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<TerminalScreen> screen,
                          TerminalScreen::Open(STDIN_FILENO, STDOUT_FILENO));
  TimePoint refresh_at = SystemClock().Now() + options.interval;
  for (;;) {
    const TerminalSize size = screen->size();
    screen->Draw(top.Lines(size.columns, size.rows, screen->has_keys()));
    const std::string shown = top.job();
    const Duration left = std::max(refresh_at - SystemClock().Now(), Duration::zero());
    TerminalKey key;
    {
      Interrupt::Scope wake(context.interrupt(), [&] { screen->Wake(); });
      key = screen->ReadKey(left);
    }
    if (context.interrupt().requested() || !top.OnKey(key)) return kExitSuccess;
    if (SystemClock().Now() < refresh_at && top.job() == shown) continue;
    MUSTER_RETURN_IF_ERROR(top.Refresh());
    refresh_at = SystemClock().Now() + options.interval;
  }
}

}  // namespace

CommandResult RunTop(CommandContext& context, const TopOptions& options) {
  if (options.interval < kLeastInterval)
    return InvalidArgument("--interval " + Fixed(ToSeconds(options.interval), 3) +
                           "s would keep the coordinator busy; give 0.1s or more");
  context.client.LimitCalls(kCallLimit);
  Top top(context, options);
  const bool for_people =
      context.output == OutputFormat::kTable || context.output == OutputFormat::kWide;
  const bool live = for_people && context.terminal.out_is_tty && !options.once;
  return live ? ShowLive(context, options, top) : ShowOnce(context, options, top);
}

}  // namespace muster
