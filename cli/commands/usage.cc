// usage: GPU-hours and slot-hours of queues, or of their users, by day.

#include <chrono>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/wall_time.h"

namespace muster::verbs {
namespace {

constexpr char kUsageExamples[] =
    "Examples:\n"
    "  muster usage --since 2026-11-01 --until 2026-11-30\n"
    "  muster usage --by user --queue research --csv > november.csv";

// Days since 1970-01-01; 0 for no text.
Result<std::int64_t> ParseDay(const std::string& flag, const std::string& text) {
  if (text.empty()) return std::int64_t{0};
  std::string_view rest = text;
  const std::optional<CivilTime> day = TakeCivilTime(&rest);
  if (!day || !rest.empty() || text.size() != 10 || day->year < 1970)
    return InvalidArgument(flag + " " + text + " is no day; write it as 2026-11-30");
  const std::chrono::year_month_day date{std::chrono::year(day->year),
                                         std::chrono::month(static_cast<unsigned>(day->month)),
                                         std::chrono::day(static_cast<unsigned>(day->day))};
  return std::int64_t{std::chrono::sys_days(date).time_since_epoch().count()};
}

std::string DayText(std::int64_t day) { return IsoTime(day * 86'400'000).substr(0, 10); }

double Allocated(const v1::UsedSeconds& used) { return used.productive() + used.lost(); }

Json SecondsJson(const v1::UsedSeconds& used) {
  return {{"allocated", Allocated(used)}, {"productive", used.productive()}, {"lost", used.lost()}};
}

// The six figures of a row in hours.
std::vector<std::string> Hours(const v1::QueueDay& row, int digits) {
  std::vector<std::string> cells;
  for (const v1::UsedSeconds* used : {&row.gpus(), &row.slots()})
    for (const double seconds : {Allocated(*used), used->productive(), used->lost()})
      cells.push_back(Fixed(seconds / 3600, digits));
  return cells;
}

void PrintCsv(std::ostream& out, const v1::ShowUsageResponse& usage, bool by_user) {
  out << "day,queue," << (by_user ? "user," : "")
      << "gpu_hours_allocated,gpu_hours_productive,gpu_hours_lost,"
         "slot_hours_allocated,slot_hours_productive,slot_hours_lost\n";
  for (const v1::QueueDay& row : usage.days()) {
    out << DayText(row.day()) << "," << row.queue();
    if (by_user) out << "," << row.user();
    for (const std::string& hours : Hours(row, 6)) out << "," << hours;
    out << "\n";
  }
}

void Sum(const v1::UsedSeconds& used, v1::UsedSeconds* sum) {
  sum->set_productive(sum->productive() + used.productive());
  sum->set_lost(sum->lost() + used.lost());
}

void PrintTable(CommandContext& context, const v1::ShowUsageResponse& usage, bool by_user) {
  std::vector<std::string> headers = {"DAY",  "QUEUE",      "GPU-HOURS",  "PRODUCTIVE",
                                      "LOST", "SLOT-HOURS", "PRODUCTIVE", "LOST"};
  if (by_user) headers.insert(headers.begin() + 2, "USER");
  Table table(headers);
  const auto add = [&table, by_user](const std::string& day, const std::string& queue,
                                     const v1::QueueDay& row) {
    std::vector<std::string> cells = Hours(row, 2);
    if (by_user) cells.insert(cells.begin(), OrDash(row.user()));
    cells.insert(cells.begin(), {day, queue});
    table.Add(std::move(cells));
  };
  v1::QueueDay all;
  for (const v1::QueueDay& row : usage.days()) {
    add(DayText(row.day()), row.queue(), row);
    Sum(row.gpus(), all.mutable_gpus());
    Sum(row.slots(), all.mutable_slots());
  }
  add("all", "-", all);
  table.Print(context.terminal.out, context.terminal.color);
}

}  // namespace

struct Usage {
  static constexpr char kName[] = "usage";
  static constexpr char kSummary[] =
      "Show the GPU-hours and slot-hours of queues by day: allocated, productive, and lost";

  std::string by = "queue";
  std::string queue;
  std::string user;
  std::string since;
  std::string until;
  bool csv = false;

  void AddFlags(Flags& flags) {
    flags.Add("--by KIND", by, "A row for each queue, or for each user of a queue")
        .OneOf({"queue", "user"});
    flags.Add("--queue QUEUE", queue, "Only this queue, and the queues below it");
    flags.Add("--user NAME", user, "Only what jobs of this user had");
    flags.Add("--since DAY", since,
              "First day, UTC, such as 2026-11-01 [default: the oldest kept]");
    flags.Add("--until DAY", until, "Last day [default: today]");
    flags.Add("--csv", csv, "Print comma-separated values");
    flags.SetFooter(kUsageExamples);
  }

  CommandResult Run(CommandContext& context) const {
    v1::ShowUsageRequest request;
    const bool by_user = by == "user" || !user.empty();
    request.set_queue(queue);
    request.set_user(user);
    request.set_by_user(by_user);
    MUSTER_ASSIGN_OR_RETURN(const std::int64_t since_day, ParseDay("--since", since));
    MUSTER_ASSIGN_OR_RETURN(const std::int64_t until_day, ParseDay("--until", until));
    if (until_day != 0 && until_day < since_day)
      return InvalidArgument("--until " + until + " is before --since " + since);
    request.set_since_day(since_day);
    request.set_until_day(until_day);
    MUSTER_ASSIGN_OR_RETURN(const v1::ShowUsageResponse usage, context.client.ShowUsage(request));
    std::ostream& out = context.terminal.out;
    if (csv) {
      PrintCsv(out, usage, by_user);
      return kExitSuccess;
    }
    Json list = Json::array();
    for (const v1::QueueDay& row : usage.days()) {
      list.push_back({{"day", DayText(row.day())},
                      {"queue", row.queue()},
                      {"gpu_seconds", SecondsJson(row.gpus())},
                      {"slot_seconds", SecondsJson(row.slots())}});
      if (by_user) list.back()["user"] = TextOrNull(row.user());
    }
    if (!PrintStructured(out, context.output, list, "queue")) PrintTable(context, usage, by_user);
    return kExitSuccess;
  }
};

template void AddVerb<Usage>(CommandLine& line);

}  // namespace muster::verbs
