// top: a live view of the cluster, or of one job.

#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/queue_texts.h"
#include "cli/top/terminal_screen.h"
#include "cli/top/top_model.h"
#include "cli/top/top_view.h"

namespace muster::verbs {

struct TopOptions {
  std::string job;  // empty: the whole cluster
  Duration interval = std::chrono::seconds(1);
  bool once = false;
};

namespace {

constexpr std::streamoff kMetricsTail = 4 << 20;
constexpr int kKeptEvents = 20;
constexpr auto kCallTimeout = std::chrono::seconds(2);
// Each refresh lists all jobs and nodes.
constexpr auto kMinInterval = std::chrono::milliseconds(100);

// Braille where the terminal's character set has it.
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

class Screen {
 public:
  Screen(CommandContext& context, const std::string& job)
      : context_(context), job_(job), glyphs_(TerminalGlyphs()) {}

  // Reads everything that is shown. An error: there is nothing to show.
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
    MUSTER_ASSIGN_OR_RETURN(model_.queues, ClusterAdmin(client).ShowQueues());
    const std::int64_t now = SystemClock().UnixMillis();
    for (const v1::Job& job : jobs.jobs())
      if (!IsTerminal(job.state()) && model_.histories.count(job.id()) == 0)
        FillFromMetrics(job, &model_.histories[job.id()]);
    model_.SetJobs(std::move(jobs), now);
    MUSTER_RETURN_IF_ERROR(AskForDetail());
    return job_.empty() ? OkStatus() : AskForJob();
  }

  // One job per refresh, so that the cost does not grow with the number of jobs.
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

  // Reads every event since the last one, a page at a time; keeps the newest.
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
  std::string detailed_;  // the job whose detail was read last
  std::size_t selected_ = 0;
  bool seen_ = false;
};

Json TopJson(const TopModel& model) {
  Json problems = Json::array();
  for (const Problem& problem : FindProblems(model))
    problems.push_back({{"severity", Name(SeverityOf(problem.kind))},
                        {"text", problem.text},
                        {"command", problem.command},
                        {"job", problem.job}});
  Json json = {{"cluster", model.cluster},
               {"problems", problems},
               {"jobs", JobListJson(model.jobs)},
               {"queues", QueueListJson(model.queues)},
               {"nodes", NodeListJson(model.nodes)}};
  json["job"] = model.open ? JobJson(*model.open) : Json(nullptr);
  return json;
}

CommandResult ShowOnce(CommandContext& context, const TopOptions& options, Screen& top) {
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

CommandResult ShowLive(CommandContext& context, const TopOptions& options, Screen& top) {
  // Before the screen is taken over, so that an error stays visible.
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

struct Top {
  static constexpr char kName[] = "top";
  static constexpr char kSummary[] = "Show a live view of the cluster or of one job";

  TopOptions options;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", options.job, kJobHelp);
    flags.Add("--interval DURATION", options.interval, "Refresh interval, at least 0.1s");
    flags.Add("--once", options.once, "Print one frame and exit");
  }

  CommandResult Run(CommandContext& context) const {
    if (options.interval < kMinInterval)
      return InvalidArgument("--interval " + Fixed(ToSeconds(options.interval), 3) +
                             "s is too short; expected 0.1s or more");
    context.client.LimitCalls(kCallTimeout);
    Screen screen(context, options.job);
    const bool live = context.for_people() && context.terminal.out_is_tty && !options.once;
    return live ? ShowLive(context, options, screen) : ShowOnce(context, options, screen);
  }
};

template void AddVerb<Top>(CommandLine& line);

}  // namespace muster::verbs
