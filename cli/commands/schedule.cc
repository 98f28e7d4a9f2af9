// schedule: what the scheduler is given and plans, as a file; and what this program makes of one.

#include <filesystem>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/files.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"

namespace muster::verbs {
namespace {

constexpr char kScheduleExamples[] =
    "Examples:\n"
    "  muster schedule export plan.schedule\n"
    "  muster schedule replay plan.schedule";

std::string At(const std::vector<std::string>& texts, std::size_t place) {
  return place < texts.size() ? texts[place] : "no such decision";
}

// The first decision of a pass that this program makes otherwise.
struct Difference {
  int pass = 0;      // from 1
  int decision = 0;  // from 1
  std::string by;    // the version that recorded it
  std::string recorded, replayed;

  Json ToJson() const {
    return {{"pass", pass},
            {"decision", decision},
            {"version", by},
            {"recorded", recorded},
            {"replayed", replayed}};
  }
  std::string Text() const {
    return "pass " + std::to_string(pass) + " differs in decision " + std::to_string(decision) +
           ":\n  recorded, by " + Printable(by) + ": " + Printable(recorded) +
           "\n  replayed: " + Printable(replayed) + "\n";
  }
};

std::optional<Difference> Compare(int number, const v1::SchedulePass& pass,
                                  const v1::SchedulePlan& replayed) {
  if (pass.plan().SerializeAsString() == replayed.SerializeAsString()) return std::nullopt;
  const std::int64_t now = pass.snapshot().now();
  Difference difference{.pass = number, .by = pass.version()};
  for (const Times times : {Times::kSeconds, Times::kNanoseconds}) {
    const std::vector<std::string> before = DecisionTexts(pass.plan(), now, times);
    const std::vector<std::string> after = DecisionTexts(replayed, now, times);
    std::size_t place = 0;
    while (place < before.size() && place < after.size() && before[place] == after[place]) ++place;
    difference.decision = static_cast<int>(place) + 1;
    difference.recorded = At(before, place);
    difference.replayed = At(after, place);
    if (before != after) break;
  }
  return difference;
}

template <typename Names, typename Masks>
Json NodesJson(const Names& nodes, const Masks& devices) {
  Json list = Json::array();
  for (int n = 0; n < nodes.size(); ++n) {
    Json indices = Json::array();
    for (int i = 0; n < devices.size() && i < 64; ++i)
      if ((devices.Get(n) >> i & 1) != 0) indices.push_back(i);
    list.push_back({{"node", nodes.Get(n)}, {"devices", std::move(indices)}});
  }
  return list;
}

template <typename Names>
Json NamesJson(const Names& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

Json PlanJson(const v1::SchedulePlan& plan, std::int64_t now) {
  Json json = {{"placements", Json::array()},
               {"waiting", Json::array()},
               {"reclaims", Json::array()},
               {"again_at", nullptr}};
  for (const v1::SchedulePlacement& placed : plan.placements())
    json["placements"].push_back({{"job", placed.job()},
                                  {"nodes", NodesJson(placed.nodes(), placed.devices())},
                                  {"spares", NodesJson(placed.spares(), placed.spare_devices())},
                                  {"lent", NamesJson(placed.lent())}});
  for (const v1::ScheduleWaiting& waiting : plan.waiting()) {
    Json promise = nullptr;
    if (waiting.has_promise())
      promise = {{"in_seconds", static_cast<double>(waiting.promise().start() - now) / 1e9},
                 {"nodes", NodesJson(waiting.promise().nodes(), waiting.promise().devices())}};
    json["waiting"].push_back({{"job", waiting.job()},
                               {"reason", waiting.reason()},
                               {"promise", std::move(promise)},
                               {"delayed", waiting.delayed()},
                               {"collects", NamesJson(waiting.collects())},
                               {"clears", NamesJson(waiting.clears())}});
  }
  for (const v1::ScheduleReclaim& reclaim : plan.reclaims()) {
    json["reclaims"].push_back({{"victim", reclaim.victim()},
                                {"claimant", reclaim.claimant()},
                                {"cause", reclaim.cause()},
                                {"cost", reclaim.cost()},
                                {"to_nodes", reclaim.to_nodes()},
                                {"gives_up", NamesJson(reclaim.gives_up())}});
  }
  if (plan.again_at() != kNever.time_since_epoch().count())
    json["again_at"] = {{"in_seconds", static_cast<double>(plan.again_at() - now) / 1e9}};
  return json;
}

// A rename would put a file in the place of a link, such as /dev/stdout, or of a device.
Status CheckMayBeReplaced(const std::string& file) {
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::symlink_status(file, unknown);
  if (!std::filesystem::exists(there) || std::filesystem::is_regular_file(there)) return OkStatus();
  return InvalidArgument(file +
                         " is no regular file; without FILE the export is on standard output");
}

std::string PassesText(int passes) {
  return std::to_string(passes) + (passes == 1 ? " pass" : " passes");
}

}  // namespace

struct ScheduleExport {
  static constexpr char kName[] = "export";
  static constexpr char kSummary[] =
      "Write what the scheduler is given now, and what it plans; without commands, paths, or names "
      "of jobs";

  std::string file;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "File to write; - writes standard output [default: -]");
    flags.SetFooter(kScheduleExamples);
  }

  CommandResult Run(CommandContext& context) const {
    Terminal& terminal = context.terminal;
    const bool to_output = file.empty() || file == "-";
    if (to_output && terminal.out_is_tty)
      return InvalidArgument("the export is no text; name a FILE, or redirect the output");
    if (!to_output) MUSTER_RETURN_IF_ERROR(CheckMayBeReplaced(file));
    MUSTER_ASSIGN_OR_RETURN(const std::string recording, context.client.ExportSchedule());
    if (to_output) {
      terminal.out << recording;
      return kExitSuccess;
    }
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(file, recording, 0600));
    terminal.err << "wrote " << Printable(file) << "\n";
    return kExitSuccess;
  }
};

struct ScheduleReplay {
  static constexpr char kName[] = "replay";
  static constexpr char kSummary[] =
      "Plan an exported or recorded schedule again, and say whether the plans are equal";

  std::string file;
  std::optional<int> pass;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "File of `muster schedule export`, or a recording").Required();
    flags.Add("--pass N", pass, "Print the plan of this pass of a recording, from 1").AtLeast(1);
    flags.SetFooter(kScheduleExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, 2 * kMaxRecordingBytes));
    RecordingReader reader(bytes, file);
    Summary summary;
    const Status status = Replay(reader, &summary);
    if (summary.passes == 0 && !status.ok()) return status;
    if (status.ok() && pass && *pass > summary.passes)
      return NotFound(file + " has " + PassesText(summary.passes));
    if (!pass && summary.passes != 1) summary.shown.Clear();  // a recording is summed up
    Print(context, summary);
    MUSTER_RETURN_IF_ERROR(status);
    return summary.difference ? kExitError : kExitSuccess;
  }

 private:
  // What the passes before the first one that cannot be planned came to.
  struct Summary {
    int passes = 0;
    std::optional<Difference> difference;
    v1::SchedulePass shown;
  };

  Status Replay(RecordingReader& reader, Summary* summary) const {
    for (v1::SchedulePass read;;) {
      MUSTER_ASSIGN_OR_RETURN(const bool more, reader.Next(&read));
      if (!more) return OkStatus();
      Result<v1::SchedulePlan> replayed = Replan(read);
      if (!replayed.ok()) return replayed.status().WithContext(reader.Place());
      summary->passes = reader.passes();
      if (!summary->difference) summary->difference = Compare(summary->passes, read, *replayed);
      if (summary->passes != pass.value_or(1)) continue;
      *read.mutable_plan() = *std::move(replayed);
      summary->shown.Swap(&read);
    }
  }

  static void Print(CommandContext& context, const Summary& summary) {
    const auto& [passes, difference, shown] = summary;
    std::ostream& out = context.terminal.out;
    const std::int64_t now = shown.snapshot().now();
    Json json = {{"passes", passes},
                 {"equal", !difference},
                 {"difference", difference ? difference->ToJson() : Json()},
                 {"plan", shown.has_plan() ? PlanJson(shown.plan(), now) : Json()}};
    if (PrintStructured(out, context.output, json, "passes")) return;
    if (shown.has_plan())
      for (const std::string& decision : DecisionTexts(shown.plan(), now))
        out << Printable(decision) << "\n";
    out << (difference ? PassesText(passes) + "; " + difference->Text()
                       : PassesText(passes) + (passes == 1 ? ", equal\n" : ", all equal\n"));
  }
};

template void AddVerb<ScheduleExport>(CommandLine& line);
template void AddVerb<ScheduleReplay>(CommandLine& line);

}  // namespace muster::verbs
