#include "cli/jobs/goodput.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace muster {
namespace {

constexpr double kNotWorthAWord = 0.0005;  // of the time in slots

std::string Percent(double share) { return Fixed(100 * share, 1) + " %"; }

}  // namespace

std::string GoodputText(const v1::Goodput& goodput) {
  return goodput.states().empty() || goodput.ratio() < 0 ? "-" : Percent(goodput.ratio());
}

std::string RankTimeText(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  const auto two = [](std::int64_t value) {
    return (value < 10 ? "0" : "") + std::to_string(value);
  };
  return std::to_string(whole / 3600) + ":" + two(whole % 3600 / 60) + ":" + two(whole % 60);
}

std::string LostText(const v1::Goodput& goodput) {
  const double had = TotalSeconds(goodput) - SecondsOf(goodput, "queue");
  std::vector<std::pair<double, std::string>> lost;
  for (const v1::TimeShare& share : goodput.states()) {
    if (share.state() == "step" || share.state() == "queue") continue;
    if (had > 0 && share.seconds() > kNotWorthAWord * had)
      lost.emplace_back(share.seconds(), share.state());
  }
  std::ranges::stable_sort(lost, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (const auto& [seconds, state] : lost)
    out += (out.empty() ? "" : ", ") + Printable(state) + " " + RankTimeText(seconds) + " (" +
           Percent(seconds / had) + ")";
  return out.empty() ? "-" : out;
}

std::string GoodputSummary(const v1::Goodput& goodput) {
  const std::string share = GoodputText(goodput);
  if (share == "-") return "";
  const std::string lost = LostText(goodput);
  return lost == "-" ? share : share + "; lost to " + lost;
}

double TotalSeconds(const v1::Goodput& goodput) {
  double total = 0;
  for (const v1::TimeShare& share : goodput.states()) total += share.seconds();
  return total;
}

double SecondsOf(const v1::Goodput& goodput, std::string_view state) {
  for (const v1::TimeShare& share : goodput.states())
    if (share.state() == state) return share.seconds();
  return 0;
}

Json GoodputJson(const v1::Goodput& goodput) {
  if (goodput.states().empty()) return nullptr;
  Json states = Json::object();
  for (const v1::TimeShare& share : goodput.states()) states[share.state()] = share.seconds();
  return {{"ratio", goodput.ratio() < 0 ? Json(nullptr) : Json(goodput.ratio())},
          {"total_seconds", TotalSeconds(goodput)},
          {"under_way_seconds", goodput.under_way_seconds()},
          {"states", std::move(states)}};
}

}  // namespace muster
