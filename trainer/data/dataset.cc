#include "trainer/data/dataset.h"

#include <algorithm>
#include <filesystem>

namespace muster {
namespace {

constexpr int kMostRuns = 12;

}  // namespace

void AddStats(const DatasetStats& more, DatasetStats* stats) {
  stats->rows += more.rows;
  stats->truncated += more.truncated;
  stats->split += more.split;
  stats->dropped += more.dropped;
  stats->tokens += more.tokens;
  stats->label_tokens += more.label_tokens;
  stats->trailing_tokens += more.trailing_tokens;
}

std::string DescribePlaces(const std::string& one, std::vector<std::int64_t> numbers,
                           const std::string& path) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text = one + (numbers.size() == 1 ? " " : "s ");
  int runs = 0;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (runs++ > 0) text += ", ";
    if (runs > kMostRuns) {
      text += "...";
      break;
    }
    text += std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text + " of " + std::filesystem::path(path).filename().string();
}

}  // namespace muster
