// schedule: what the scheduler is given and plans, as a file; and what this program makes of one.

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

// "-" where a pass has no decision of that number.
std::string At(const std::vector<std::string>& texts, std::size_t place) {
  return place < texts.size() ? texts[place] : "-";
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
           ":\n  recorded, by " + by + ": " + recorded + "\n  replayed: " + replayed + "\n";
  }
};

std::optional<Difference> Compare(int number, const v1::SchedulePass& pass,
                                  const v1::SchedulePlan& replayed) {
  if (pass.plan().SerializeAsString() == replayed.SerializeAsString()) return std::nullopt;
  const std::int64_t now = pass.snapshot().now();
  const std::vector<std::string> before = DecisionTexts(pass.plan(), now);
  const std::vector<std::string> after = DecisionTexts(replayed, now);
  std::size_t place = 0;
  while (place < before.size() && place < after.size() && before[place] == after[place]) ++place;
  return Difference{number, static_cast<int>(place) + 1, pass.version(), At(before, place),
                    At(after, place)};
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

Json PlanJson(const v1::SchedulePlan& plan, std::int64_t now) {
  Json json = {{"placements", Json::array()}, {"waiting", Json::array()}};
  for (const v1::SchedulePlacement& placed : plan.placements())
    json["placements"].push_back({{"job", placed.job()},
                                  {"nodes", NodesJson(placed.nodes(), placed.devices())},
                                  {"spares", NodesJson(placed.spares(), placed.spare_devices())}});
  for (const v1::ScheduleWaiting& waiting : plan.waiting()) {
    Json promise = nullptr;
    if (waiting.has_promise())
      promise = {{"in_seconds", static_cast<double>(waiting.promise().start() - now) / 1e9},
                 {"nodes", NodesJson(waiting.promise().nodes(), waiting.promise().devices())}};
    Json collects = Json::array();
    for (const std::string& node : waiting.collects()) collects.push_back(node);
    json["waiting"].push_back({{"job", waiting.job()},
                               {"reason", waiting.reason()},
                               {"promise", std::move(promise)},
                               {"delayed", waiting.delayed()},
                               {"collects", std::move(collects)}});
  }
  return json;
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
    flags.Add("FILE", file, "File to write [default: standard output]");
    flags.SetFooter(kScheduleExamples);
  }

  CommandResult Run(CommandContext& context) const {
    Terminal& terminal = context.terminal;
    if (file.empty() && terminal.out_is_tty)
      return InvalidArgument("the export is no text; name a FILE, or redirect the output");
    MUSTER_ASSIGN_OR_RETURN(const v1::ExportScheduleResponse response,
                            context.client.ExportSchedule());
    if (file.empty()) {
      terminal.out << response.recording();
      return kExitSuccess;
    }
    MUSTER_RETURN_IF_ERROR(WriteFileAtomically(file, response.recording(), 0600));
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
    std::optional<Difference> difference;
    v1::SchedulePass read, shown;
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(const bool more, reader.Next(&read));
      if (!more) break;
      MUSTER_ASSIGN_OR_RETURN(v1::SchedulePlan replayed, Replan(read));
      if (!difference) difference = Compare(reader.passes(), read, replayed);
      if (reader.passes() != pass.value_or(1)) continue;
      *read.mutable_plan() = std::move(replayed);
      shown.Swap(&read);
    }
    if (pass && *pass > reader.passes())
      return NotFound(file + " has " + PassesText(reader.passes()));
    if (!pass && reader.passes() != 1) shown.Clear();  // a recording is summed up
    Print(context, reader.passes(), difference, shown);
    return difference ? kExitError : kExitSuccess;
  }

 private:
  static void Print(CommandContext& context, int passes,
                    const std::optional<Difference>& difference, const v1::SchedulePass& shown) {
    std::ostream& out = context.terminal.out;
    const std::int64_t now = shown.snapshot().now();
    Json json = {{"passes", passes},
                 {"equal", !difference},
                 {"difference", difference ? difference->ToJson() : Json()},
                 {"plan", shown.has_plan() ? PlanJson(shown.plan(), now) : Json()}};
    if (PrintStructured(out, context.output, json, "passes")) return;
    for (const std::string& decision : DecisionTexts(shown.plan(), now))
      out << Printable(decision) << "\n";
    out << (difference ? Printable(PassesText(passes)) + "; " + difference->Text()
                       : PassesText(passes) + (passes == 1 ? ", equal\n" : ", all equal\n"));
  }
};

template void AddVerb<ScheduleExport>(CommandLine& line);
template void AddVerb<ScheduleReplay>(CommandLine& line);

}  // namespace muster::verbs
