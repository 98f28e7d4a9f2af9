#include "cli/top/top_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/terminal.h"
#include "cli/jobs/goodput.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/progress_line.h"
#include "cli/jobs/queue_texts.h"
#include "cli/jobs/timeline.h"

namespace muster {
namespace {

constexpr int kCurveHeight = 4;
constexpr int kShownEvents = 5;
constexpr int kNarrow = 80;
constexpr int kTitleWidth = 22;  // of a curve that has one line

Style StyleOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_SUCCEEDED: return Style::kGood;
    case v1::JOB_STATE_FAILED: return Style::kBad;
    case v1::JOB_STATE_RECOVERING:
    case v1::JOB_STATE_STARTING:
    case v1::JOB_STATE_STOPPING: return Style::kWarn;
    default: return Style::kPlain;
  }
}

Style StyleOf(v1::NodeState state) {
  switch (state) {
    case v1::NODE_STATE_READY: return Style::kGood;
    case v1::NODE_STATE_LOST:
    case v1::NODE_STATE_QUARANTINED: return Style::kBad;
    default: return Style::kWarn;
  }
}

std::string Thousands(double value) {
  if (!(value > 0)) return "-";
  if (value < 10'000) return Fixed(value, 0);
  if (value < 10'000'000) return Fixed(value / 1000, 1) + "k";
  return Fixed(value / 1'000'000, 1) + "M";
}

std::string StepOf(const v1::Job& job) {
  if (job.step() == 0 && job.max_steps() == 0) return "-";
  const std::string total = job.max_steps() > 0 ? "/" + std::to_string(job.max_steps()) : "";
  return std::to_string(job.step()) + total;
}

std::string EtaOf(const v1::Job& job) {
  return job.eta_seconds() >= 0 && !IsTerminal(job.state()) ? HumanSeconds(job.eta_seconds()) : "-";
}

const JobHistory* HistoryOf(const TopModel& model, const std::string& job) {
  const auto found = model.histories.find(job);
  return found == model.histories.end() ? nullptr : &found->second;
}

// "2 running, 1 queued".
template <typename Items>
std::string CountStates(const Items& items) {
  std::map<int, int> counts;
  for (const auto& item : items) ++counts[item.state()];
  std::string text;
  using State = std::decay_t<decltype((*items.begin()).state())>;
  for (const auto& [state, count] : counts)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " +
            StateWord(static_cast<State>(state));
  return text.empty() ? "none" : text;
}

void AddHead(const TopModel& model, TextPage* page) {
  int slots = 0, used = 0, gpus = 0, gpus_used = 0;
  for (const v1::Node& node : model.nodes.nodes()) {
    slots += node.slots();
    used += node.slots_used();
    gpus += node.inventory().devices_size();
    gpus_used += node.allocated_size();
  }
  const std::string title = "muster " + Printable(model.cluster);
  const std::string clock = "  " + LocalClock(model.now_unix_ms);
  const std::string jobs = "jobs: " + CountStates(model.jobs.jobs());
  const std::string nodes =
      "nodes: " + CountStates(model.nodes.nodes()) + "  slots: " + std::to_string(used) + "/" +
      std::to_string(slots) +
      (gpus == 0 ? "" : "  GPUs: " + std::to_string(gpus_used) + "/" + std::to_string(gpus));
  const std::size_t room = page->columns();
  const bool one_line = TextWidth(title + clock + jobs + nodes) + 4 <= room;
  const bool two_lines = one_line || TextWidth(title + clock + nodes) + 2 <= room;
  const std::string beside = one_line ? "  " + jobs + "  " + nodes : two_lines ? "  " + nodes : "";
  page->NewLine().Add(title, Style::kBold).Add(clock + beside);
  if (!two_lines) page->NewLine().Add(nodes);
  if (!one_line) page->NewLine().Add(jobs);
}

// One line for the worst and one for how many more there are.
void AddProblems(const TopModel& model, TextPage* page) {
  const std::vector<Problem> problems = FindProblems(model);
  if (problems.empty()) {
    page->NewLine().Add("no known problems", Style::kDim);
    return;
  }
  const Problem& worst = problems.front();
  const Style style =
      SeverityOf(worst.kind) == ProblemSeverity::kError ? Style::kBad : Style::kWarn;
  const std::string sentence = "! " + worst.text;
  page->NewLine().Add(sentence, style);
  // What the screen is too narrow for goes on below, once.
  const std::string shown = CutText(sentence, page->columns());
  if (shown.size() < sentence.size())
    page->NewLine().Add("  " + sentence.substr(shown.size()), style);
  std::string next = worst.command.empty() ? "" : "  next: " + worst.command;
  if (problems.size() > 1) next += "  (and " + std::to_string(problems.size() - 1) + " more)";
  if (!next.empty()) page->NewLine().Add(next, Style::kDim);
}

struct JobColumns {
  std::size_t name = 16, state = 10, step = 13, loss = 9, curve = 10, speed = 8;
};

JobColumns ColumnsFor(std::size_t width) {
  JobColumns columns;
  const std::size_t extra = width > kNarrow ? width - kNarrow : 0;
  columns.name += std::min<std::size_t>(extra / 3, 24);
  columns.curve += std::min<std::size_t>(extra / 2, 40);
  return columns;
}

void AddJob(const TopModel& model, const v1::Job& job, bool selected, TextPage* page) {
  const JobColumns w = ColumnsFor(page->columns());
  const Style base = selected ? Style::kReverse : Style::kPlain;
  const JobHistory* history = HistoryOf(model, job.id());
  const std::vector<double> loss = history ? history->loss.values() : std::vector<double>();
  const std::string curve =
      Chart(loss, static_cast<int>(w.curve), 1, page->options().glyphs).front();
  const std::string name = job.name().empty() ? job.id() : job.name();
  TextPage::Line line = page->NewLine();
  line.Add(Padded(Printable(name), w.name) + " ", base)
      .Add(Padded(StateWord(job.state()), w.state) + " ",
           selected ? Style::kReverse : StyleOf(job.state()))
      .Add(RightAligned(StepOf(job), w.step) + " ", base)
      .Add(RightAligned(HasLoss(job) ? LossText(job.loss(), 4) : "-", w.loss) + " ", base)
      .Add(curve + " ", base)
      .Add(RightAligned(Thousands(job.tokens_per_second()), w.speed) + " ", base)
      .Add(job.state() == v1::JOB_STATE_QUEUED ? Printable(job.reason()) : EtaOf(job), base);
  if (selected) line.Fill(Style::kReverse);
}

void AddJobs(const TopModel& model, std::size_t room, TextPage* page) {
  const std::vector<const v1::Job*> jobs = JobsInOrder(model);
  const JobColumns w = ColumnsFor(page->columns());
  page->NewLine().Add(Padded("JOB", w.name) + " " + Padded("STATE", w.state) + " " +
                          RightAligned("STEP", w.step) + " " + RightAligned("LOSS", w.loss) + " " +
                          Padded("", w.curve) + " " + RightAligned("TOK/S", w.speed) + " ETA",
                      Style::kDim);
  if (jobs.empty()) page->NewLine().Add("no jobs; next: muster submit job.yaml");
  const bool cut = jobs.size() > room;
  const std::size_t shown = cut ? std::max<std::size_t>(room, 1) - 1 : jobs.size();
  // The selected one stays in view.
  const std::size_t selected =
      std::min(page->options().selected, jobs.empty() ? 0 : jobs.size() - 1);
  const std::size_t first = selected >= shown && shown > 0 ? selected - shown + 1 : 0;
  for (std::size_t i = first; i < first + shown; ++i)
    AddJob(model, *jobs[i], page->options().keys && i == selected, page);
  if (cut) page->NewLine().Add("and " + std::to_string(jobs.size() - shown) + " more", Style::kDim);
}

std::string PercentText(double part) { return Fixed(100 * part, 0) + "%"; }

void AddQueueRow(const std::vector<std::string>& cells, Style style, TextPage* page) {
  constexpr std::size_t kWidths[] = {14, 15, 11, 11, 5, 5, 4, 4};
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i)
    text += i < 4 ? Padded(cells[i], kWidths[i]) + " " : RightAligned(cells[i], kWidths[i]) + " ";
  page->NewLine().Add(text, style);
}

// A queue stands below its parent, two blanks to the right; where there is no room for all, those
// with jobs come first.
void AddQueues(const TopModel& model, std::size_t room, TextPage* page) {
  if (room < 2) return;
  std::vector<const v1::Queue*> queues;
  std::map<std::string, std::size_t> depths;
  for (const v1::Queue& queue : model.queues.queues()) {
    queues.push_back(&queue);
    depths[queue.name()] = queue.parent().empty() ? 0 : depths[queue.parent()] + 1;
  }
  const bool cut = queues.size() > room;
  const std::size_t shown = cut ? room - 1 : queues.size();
  if (cut)
    std::stable_partition(queues.begin(), queues.end(), [](const v1::Queue* queue) {
      return queue->running() + queue->waiting() > 0;
    });
  AddQueueRow({"QUEUE", "USED", "GUARANTEE", "CEILING", "SHARE", "HAD", "RUN", "WAIT"}, Style::kDim,
              page);
  for (std::size_t i = 0; i < shown; ++i) {
    const v1::Queue& queue = *queues[i];
    AddQueueRow(
        {std::string(2 * depths[queue.name()], ' ') + queue.name(), AmountText(queue.used()),
         AmountText(queue.guarantee()), AmountText(queue.ceiling()), PercentText(queue.share()),
         PercentText(queue.usage_share()), std::to_string(queue.running()),
         std::to_string(queue.waiting())},
        Style::kPlain, page);
  }
  if (cut)
    page->NewLine().Add("and " + std::to_string(queues.size() - shown) + " more", Style::kDim);
  page->Empty();
}

// As many to a line as fit; those that are not ready first.
void AddNodes(const TopModel& model, TextPage* page) {
  std::vector<const v1::Node*> nodes;
  for (const v1::Node& node : model.nodes.nodes()) nodes.push_back(&node);
  std::stable_partition(nodes.begin(), nodes.end(),
                        [](const v1::Node* node) { return node->state() != v1::NODE_STATE_READY; });
  const std::size_t width = page->columns() < 40 ? page->columns() : 26;
  const std::size_t per_line = std::max<std::size_t>(1, page->columns() / width);
  page->NewLine().Add("NODES", Style::kDim);
  for (std::size_t i = 0; i < nodes.size();) {
    const bool last_line = page->Room(page->options().keys ? 1 : 0) <= 1;
    if (last_line && nodes.size() - i > per_line) {
      page->NewLine().Add("and " + std::to_string(nodes.size() - i) + " more", Style::kDim);
      return;
    }
    TextPage::Line line = page->NewLine();
    for (std::size_t c = 0; c < per_line && i < nodes.size(); ++c, ++i) {
      const v1::Node& node = *nodes[i];
      const std::string slots =
          " " + std::to_string(node.slots_used()) + "/" + std::to_string(node.slots());
      line.Add(Padded(Printable(node.name()), width / 2) + " ")
          .Add(Padded(StateWord(node.state()) + slots, width - width / 2 - 1),
               StyleOf(node.state()));
    }
  }
}

void AddKeys(std::string_view text, TextPage* page) {
  if (page->options().keys) page->NewLine().Add(text, Style::kDim);
}

// --- a job's page ---

struct Curve {
  std::string title;
  std::vector<double> values;
  std::string last;
  std::string range;  // between which values it lies, in brackets

  // As much of it as fits whole.
  std::string Heading(std::size_t width) const {
    const std::string value = title + " " + last;
    return TextWidth(value + range) + 1 <= width ? value + " " + range : value;
  }
};

std::vector<Curve> CurvesOf(const TopModel& model, const v1::Job& job) {
  const JobHistory* history = HistoryOf(model, job.id());
  if (!history) return {};
  const auto curve = [](const char* title, const Series& series, auto text) -> Curve {
    std::vector<double> finite = series.values();
    std::erase_if(finite, [](double value) { return !std::isfinite(value); });
    std::string range;
    if (!finite.empty()) {
      const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
      range = "(" + text(*low) + " to " + text(*high) + ")";
    }
    return {title, series.values(), series.empty() ? "-" : text(series.last()), range};
  };
  return {curve("loss", history->loss, [](double v) { return LossText(v, 4); }),
          curve("step time", history->step_seconds, [](double v) { return Fixed(v, 3) + " s"; }),
          curve("memory", history->memory,
                [](double v) { return HumanBytes(static_cast<std::uint64_t>(v)); })};
}

// Side by side where there is room for 30 columns each, else one line each.
void AddCurves(const TopModel& model, const v1::Job& job, TextPage* page) {
  const std::vector<Curve> curves = CurvesOf(model, job);
  if (curves.empty()) return;
  const std::size_t width = page->columns() / curves.size();
  const Glyphs glyphs = page->options().glyphs;
  if (width < 26) {
    const int room = std::max(static_cast<int>(page->columns()) - kTitleWidth, 1);
    for (const Curve& curve : curves)
      page->NewLine()
          .Add(Padded(curve.Heading(0), kTitleWidth), Style::kDim)
          .Add(Chart(curve.values, room, 1, glyphs).front());
    return;
  }
  std::vector<std::vector<std::string>> charts;
  for (const Curve& curve : curves)
    charts.push_back(Chart(curve.values, static_cast<int>(width) - 2, kCurveHeight, glyphs));
  {
    TextPage::Line titles = page->NewLine();
    for (const Curve& curve : curves)
      titles.Add(Padded(CutText(curve.Heading(width - 2), width - 2), width), Style::kDim);
  }
  for (int row = 0; row < kCurveHeight; ++row) {
    TextPage::Line line = page->NewLine();
    for (const auto& chart : charts) line.Add(chart[static_cast<std::size_t>(row)] + "  ");
  }
}

struct RankRow {
  const v1::RankStatus* status;
  const v1::RankProgress* progress;  // null: not known
};

// A node reports its ranks once a second: fast steps may be as far apart and say nothing.
bool IsBehind(const v1::RankProgress& rank, std::int64_t newest) {
  constexpr double kBehindSeconds = 2;
  const auto steps = static_cast<double>(newest - rank.step() - 1);
  return steps > 0 && (rank.step_seconds() <= 0 || steps * rank.step_seconds() > kBehindSeconds);
}

// Those that need a look first: not running, then behind, then slow in their own work.
std::vector<RankRow> RanksInOrder(const v1::Job& job) {
  std::map<int, const v1::RankProgress*> progress;
  std::int64_t newest = 0;
  for (const auto& each : job.progress()) {
    progress[each.rank()] = &each;
    newest = std::max(newest, each.step());
  }
  std::vector<RankRow> rows;
  for (const auto& rank : job.ranks()) {
    const auto found = progress.find(rank.rank());
    rows.push_back({&rank, found == progress.end() ? nullptr : found->second});
  }
  const auto key = [newest](const RankRow& row) {
    const double work =
        row.progress && row.progress->steps_done() > 0
            ? row.progress->busy_seconds() / static_cast<double>(row.progress->steps_done())
            : 0;
    const bool behind = row.progress && IsBehind(*row.progress, newest);
    const std::int64_t step = !row.progress ? -1 : behind ? row.progress->step() : newest;
    return std::tuple(row.status->state() == v1::RANK_STATE_RUNNING, step, -work);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const RankRow& a, const RankRow& b) { return key(a) < key(b); });
  return rows;
}

void AddRank(const RankRow& row, TextPage* page) {
  const v1::RankProgress* p = row.progress;
  const bool runs = row.status->state() == v1::RANK_STATE_RUNNING;
  const double steps = p ? static_cast<double>(p->steps_done()) : 0;
  const std::uint64_t memory = p ? TrainingMemoryBytes(*p) : 0;
  page->NewLine()
      .Add(RightAligned(std::to_string(row.status->rank()), 5) + " ")
      .Add(Padded(Printable(row.status->node()), 14) + " ")
      .Add(Padded(RankWord(*row.status), 18) + " ", runs ? Style::kGood : Style::kBad)
      .Add(RightAligned(p ? std::to_string(p->step()) : "-", 8) + " ")
      .Add(Padded(p ? PhaseWord(p->phase()) : "-", 10) + " ")
      .Add(RightAligned(steps > 0 ? Fixed(p->busy_seconds() / steps, 3) : "-", 8) + " ")
      .Add(RightAligned(memory > 0 ? HumanBytes(memory) : "-", 9));
}

void AddRanks(const v1::Job& job, std::size_t reserved, TextPage* page) {
  const std::vector<RankRow> rows = RanksInOrder(job);
  page->NewLine().Add(RightAligned("RANK", 5) + " " + Padded("NODE", 14) + " " +
                          Padded("STATE", 18) + " " + RightAligned("STEP", 8) + " " +
                          Padded("PHASE", 10) + " " + RightAligned("BUSY S", 8) + " " +
                          RightAligned("MEMORY", 9),
                      Style::kDim);
  const std::size_t room = page->Room(reserved);
  const bool cut = rows.size() > room;
  const std::size_t shown = cut ? std::max<std::size_t>(room, 1) - 1 : rows.size();
  for (std::size_t i = 0; i < shown; ++i) AddRank(rows[i], page);
  if (cut)
    page->NewLine().Add("and " + std::to_string(rows.size() - shown) + " more ranks", Style::kDim);
}

void AddRecovery(const v1::Job& job, TextPage* page) {
  if (job.attempts_size() < 2) return;
  const v1::AttemptInfo& before = job.attempts(job.attempts_size() - 2);
  const v1::AttemptInfo& now = job.attempts(job.attempts_size() - 1);
  std::string text = "attempt " + std::to_string(now.generation());
  if (!before.cause().empty()) text += " after " + Printable(before.cause());
  if (now.has_seconds()) {
    const std::string stages = FormatStages(now.seconds());
    if (!stages.empty()) text += "; " + stages;
  }
  page->NewLine().Add(text, Style::kWarn);
}

}  // namespace

std::vector<const v1::Job*> JobsInOrder(const TopModel& model) {
  std::vector<const v1::Job*> jobs;
  for (const v1::Job& job : model.jobs.jobs()) jobs.push_back(&job);
  const auto key = [](const v1::Job* job) {
    const int group = IsTerminal(job->state()) ? 2 : job->state() == v1::JOB_STATE_QUEUED ? 1 : 0;
    return std::pair(group, group == 2 ? -job->ended_unix_ms() : job->submitted_unix_ms());
  };
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const v1::Job* a, const v1::Job* b) { return key(a) < key(b); });
  return jobs;
}

std::vector<std::string> OverviewLines(const TopModel& model, const TopViewOptions& options) {
  TextPage page(options);
  AddHead(model, &page);
  AddProblems(model, &page);
  page.Empty();
  // A third of what is left, at most, is the nodes', and a sixth the queues'. A single queue says
  // nothing.
  const std::size_t left = page.Room(0);
  const auto queues = static_cast<std::size_t>(model.queues.queues_size());
  const std::size_t queue_rows = queues < 2 ? 0 : std::min(queues, left / 6);
  const std::size_t reserved = left / 3 + 3 + (queue_rows < 2 ? 0 : queue_rows + 2);
  const std::size_t room = left == SIZE_MAX ? left : left - std::min(left, reserved);
  AddJobs(model, room, &page);
  page.Empty();
  AddQueues(model, queue_rows, &page);
  AddNodes(model, &page);
  AddKeys("q quit  up/down select  enter open", &page);
  return page.Take();
}

std::vector<std::string> JobLines(const TopModel& model, const TopViewOptions& options) {
  TextPage page(options);
  const v1::Job& job = *model.open;
  AddHead(model, &page);
  AddProblems(model, &page);
  page.Empty();
  page.NewLine()
      .Add(Printable(job.name()) + " ", Style::kBold)
      .Add(job.id() + "  ", Style::kDim)
      .Add(StateWord(job.state()), StyleOf(job.state()))
      .Add(job.reason().empty() ? "" : "  " + Printable(job.reason()));
  page.NewLine().Add(ProgressLine(job, page.columns()));
  const std::string goodput = GoodputSummary(job.goodput());
  if (!goodput.empty()) page.NewLine().Add("goodput " + goodput, Style::kDim);
  AddRecovery(job, &page);
  page.Empty();
  AddCurves(model, job, &page);
  page.Empty();
  const std::size_t events =
      std::min<std::size_t>(model.events.size(), options.rows > 30 ? kShownEvents : 2);
  AddRanks(job, events + (events > 0 ? 1 : 0) + (options.keys ? 1 : 0), &page);
  if (events > 0) page.NewLine().Add("EVENTS", Style::kDim);
  for (std::size_t i = model.events.size() - events; i < model.events.size(); ++i)
    page.NewLine().Add(LocalClock(model.events[i].unix_ms()) + " " +
                       Printable(model.events[i].message()));
  AddKeys("q quit  esc back", &page);
  return page.Take();
}

}  // namespace muster
