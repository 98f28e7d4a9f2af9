#include "trainer/report/profile_report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

double MedianUnit(const ProfileTable& table) {
  std::vector<double> means;
  for (const ProfileTable::Unit& unit : table.units) means.push_back(unit.mean);
  std::nth_element(means.begin(), means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2),
                   means.end());
  return means[means.size() / 2];
}

// The mean over the ranks other than `rank` of what they wait.
double WaitsOfOthers(const ProfileTable& table, int rank) {
  double sum = 0;
  for (std::size_t r = 0; r < table.ranks.size(); ++r)
    if (r != static_cast<std::size_t>(rank)) sum += table.ranks[r].Waits();
  return sum / static_cast<double>(table.ranks.size() - 1);
}

// This rank's events as the inner part of a JSON list, a comma after each.
std::string EventLines(const Profiler& profiler, int rank) {
  std::string lines = Json({{"name", "process_name"},
                            {"ph", "M"},
                            {"pid", rank},
                            {"args", {{"name", "rank " + std::to_string(rank)}}}})
                          .dump() +
                      ",\n";
  for (const TraceEvent& event : profiler.events()) {
    const std::string phase(event.is_step ? "step" : TracePhaseName(event.phase));
    Json line = {{"name", event.is_step ? event.name : phase + " " + event.name},
                 {"cat", phase},
                 {"ph", "X"},
                 {"ts", Microseconds(event.begin)},
                 {"dur", Microseconds(event.length)},
                 {"pid", rank},
                 {"tid", 0}};
    if (event.unit >= 0) line["args"] = {{"unit", event.unit}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + ",\n";
  }
  return lines;
}

// Rank 0's side of the trace: a temporary file that becomes the target when it is whole.
class TraceFile {
 public:
  explicit TraceFile(std::string path)
      : path_(std::move(path)), temporary_(path_ + ".writing"), out_(temporary_) {
    out_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  }
  void Append(const std::string& lines) { out_ << lines; }
  Status Finish(std::int64_t left_out) {
    // Closes the list without a comma before its end.
    out_ << "{\"name\": \"end\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"events_left_out\": "
         << left_out << "}}\n]}\n";
    out_.close();
    std::error_code error;
    if (out_) std::filesystem::rename(temporary_, path_, error);
    if (!out_ || error) {
      std::filesystem::remove(temporary_, error);
      return ResourceExhausted("cannot write the trace " + path_);
    }
    return OkStatus();
  }

 private:
  const std::string path_;
  const std::string temporary_;
  std::ofstream out_;
};

// Every rank's lines, one rank after the other, for rank 0 to keep; and how many events of all
// ranks are not among them.
Result<std::int64_t> CollectTrace(const Profiler& profiler, Communicator& communicator,
                                  TraceFile* file) {
  std::int64_t left_out = profiler.events_left_out();
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&left_out, 1, ElementType::kInt64, ReduceOp::kSum)->Wait());
  for (int root = 0; root < communicator.size(); ++root) {
    const bool mine = root == communicator.rank();
    std::string lines = mine ? EventLines(profiler, root) : std::string();
    std::int64_t bytes = static_cast<std::int64_t>(lines.size());
    MUSTER_RETURN_IF_ERROR(communicator.Broadcast(&bytes, sizeof bytes, root)->Wait());
    lines.resize(static_cast<std::size_t>(bytes));
    MUSTER_RETURN_IF_ERROR(communicator.Broadcast(lines.data(), lines.size(), root)->Wait());
    if (file != nullptr) file->Append(lines);
  }
  return left_out;
}

}  // namespace

double ProfileTable::Rank::Waits() const {
  return phases[static_cast<std::size_t>(TracePhase::kGatherWait)] +
         phases[static_cast<std::size_t>(TracePhase::kReduceWait)];
}

double ProfileTable::Rank::Other() const {
  double rest = total;
  for (const double phase : phases) rest -= phase;
  return std::max(0.0, rest);
}

int ProfileTable::SlowestRank() const {
  if (ranks.size() < 2) return -1;
  const auto least = std::min_element(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
    return a.Waits() < b.Waits();
  });
  return static_cast<int>(least - ranks.begin());
}

int ProfileTable::SlowestUnit() const {
  if (units.empty()) return -1;
  const auto most = std::max_element(units.begin(), units.end(),
                                     [](const Unit& a, const Unit& b) { return a.mean < b.mean; });
  return static_cast<int>(most - units.begin());
}

Result<ProfileTable> GatherProfile(const Profiler& profiler, Communicator& communicator) {
  const ProfileTotals& mine = profiler.totals();
  ProfileTable table{.first_step = profiler.first_step(), .steps = mine.steps};
  const auto milliseconds = [&mine](double seconds) {
    return mine.steps == 0 ? 0.0 : seconds * 1e3 / static_cast<double>(mine.steps);
  };

  std::array<double, kTracePhaseCount + 1> row;
  std::transform(mine.phases.begin(), mine.phases.end(), row.begin(), milliseconds);
  row.back() = milliseconds(mine.seconds);
  std::vector<double> rows(row.size() * static_cast<std::size_t>(communicator.size()));
  MUSTER_RETURN_IF_ERROR(
      communicator.AllGather(row.data(), rows.data(), row.size(), ElementType::kFloat64)->Wait());
  for (auto at = rows.begin(); at != rows.end(); at += static_cast<std::ptrdiff_t>(row.size())) {
    ProfileTable::Rank& rank = table.ranks.emplace_back();
    std::copy_n(at, kTracePhaseCount, rank.phases.begin());
    rank.total = at[kTracePhaseCount];
  }

  // Ranks have the same units, unless one has traced none.
  auto unit_count = static_cast<std::int64_t>(mine.units.size());
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&unit_count, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (unit_count == 0) return table;
  std::vector<double> means(static_cast<std::size_t>(unit_count));
  for (std::size_t u = 0; u < mine.units.size(); ++u)
    means[u] = milliseconds(mine.units[u].seconds) / communicator.size();
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(means.data(), means.size(), ElementType::kFloat64, ReduceOp::kSum)
          ->Wait());
  for (std::size_t u = 0; u < means.size(); ++u)
    table.units.push_back({u < mine.units.size() ? mine.units[u].name : "", means[u]});
  return table;
}

Status WriteProfile(const Profiler& profiler, const ProfileTable& table,
                    const std::string& directory, Communicator& communicator, Status* written) {
  if (communicator.rank() != 0) return CollectTrace(profiler, communicator, nullptr).status();
  *written = MakeDirectories(directory);
  TraceFile file(directory + "/trace.json");
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t left_out, CollectTrace(profiler, communicator, &file));
  if (written->ok()) *written = file.Finish(left_out);
  if (written->ok()) {
    *written = WriteFileAtomically(directory + "/table.json", ProfileJson(table) + "\n");
  }
  return OkStatus();
}

std::string ProfileText(const ProfileTable& table) {
  std::string text = "profile of steps " + std::to_string(table.first_step) + " to " +
                     std::to_string(table.first_step + table.steps - 1) + ", ms per step\n";
  char cell[96];
  text += "rank";
  for (int p = 0; p < kTracePhaseCount; ++p) {
    std::snprintf(cell, sizeof cell, "  %11s", TracePhaseName(static_cast<TracePhase>(p)).data());
    text += cell;
  }
  text += "        other        total\n";
  for (std::size_t r = 0; r < table.ranks.size(); ++r) {
    const ProfileTable::Rank& rank = table.ranks[r];
    std::snprintf(cell, sizeof cell, "%4zu", r);
    text += cell;
    for (const double phase : rank.phases) {
      std::snprintf(cell, sizeof cell, "  %11.2f", phase);
      text += cell;
    }
    std::snprintf(cell, sizeof cell, "  %11.2f  %11.2f\n", rank.Other(), rank.total);
    text += cell;
  }
  if (const int slowest = table.SlowestRank(); slowest >= 0) {
    std::snprintf(cell, sizeof cell, "slowest rank: %d, waits %.2f ms; the others wait %.2f ms\n",
                  slowest, table.ranks[static_cast<std::size_t>(slowest)].Waits(),
                  WaitsOfOthers(table, slowest));
    text += cell;
  }
  if (const int slowest = table.SlowestUnit(); slowest >= 0) {
    const ProfileTable::Unit& unit = table.units[static_cast<std::size_t>(slowest)];
    std::snprintf(cell, sizeof cell, ", %.2f ms (the median unit %.2f ms)\n", unit.mean,
                  MedianUnit(table));
    text += "slowest layer: " + unit.name + cell;
  }
  return text;
}

std::string ProfileJson(const ProfileTable& table) {
  Json ranks = Json::array();
  for (std::size_t r = 0; r < table.ranks.size(); ++r) {
    Json row = {{"rank", r}};
    for (int p = 0; p < kTracePhaseCount; ++p) {
      std::string key(TracePhaseName(static_cast<TracePhase>(p)));
      std::replace(key.begin(), key.end(), ' ', '_');
      row[key] = table.ranks[r].phases[static_cast<std::size_t>(p)];
    }
    row["other"] = table.ranks[r].Other();
    row["total"] = table.ranks[r].total;
    ranks.push_back(std::move(row));
  }
  Json units = Json::array();
  for (const ProfileTable::Unit& unit : table.units)
    units.push_back({{"name", unit.name}, {"mean", unit.mean}});
  const int rank = table.SlowestRank();
  const int unit = table.SlowestUnit();
  const Json json = {
      {"first_step", table.first_step},
      {"steps", table.steps},
      {"unit", "ms per step"},
      {"ranks", std::move(ranks)},
      {"layers", std::move(units)},
      {"slowest_rank", rank < 0 ? Json() : Json(rank)},
      {"slowest_layer", unit < 0 ? Json() : Json(table.units[static_cast<std::size_t>(unit)].name)},
  };
  return json.dump(2);
}

}  // namespace muster
