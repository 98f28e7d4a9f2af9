#include "cli/top/sparkline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace muster {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
constexpr char kMarks[] = "_.-=+*#@";  // from low to high

// The means of `columns` neighbouring parts; fewer values than columns leave the rest empty.
std::vector<double> Spread(std::span<const double> values, std::size_t columns) {
  std::vector<double> means(columns, kGap);
  const std::size_t used = std::min(columns, values.size());
  for (std::size_t c = 0; c < used; ++c) {
    const std::size_t begin = c * values.size() / used;
    const std::size_t end = (c + 1) * values.size() / used;
    double sum = 0;
    int count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    if (count > 0) means[c] = sum / count;
  }
  return means;
}

// Levels 0 to `levels` - 1; -1 for a gap.
std::vector<int> Levels(const std::vector<double>& values, int levels) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::vector<int> result(values.size(), -1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const double share = high > low ? (values[i] - low) / (high - low) : 0.5;
    result[i] = std::clamp(static_cast<int>(share * levels), 0, levels - 1);
  }
  return result;
}

void AppendUtf8(std::string* out, unsigned code) {
  out->push_back(static_cast<char>(0xe0 | code >> 12));
  out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
  out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
}

std::vector<std::string> Braille(std::span<const double> values, int width, int height) {
  // The bits of the dots of a column, from the top one.
  static constexpr unsigned kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  const auto columns = static_cast<std::size_t>(width) * 2;
  const std::vector<int> levels = Levels(Spread(values, columns), height * 4);
  std::vector<std::string> lines(static_cast<std::size_t>(height));
  for (int row = 0; row < height; ++row) {
    for (std::size_t cell = 0; cell < columns; cell += 2) {
      unsigned dots = 0;
      for (std::size_t side = 0; side < 2; ++side) {
        if (levels[cell + side] < 0) continue;
        const int from_top = height * 4 - 1 - levels[cell + side];
        if (from_top / 4 == row) dots |= kDots[side][from_top % 4];
      }
      AppendUtf8(&lines[static_cast<std::size_t>(row)], 0x2800 + dots);
    }
  }
  return lines;
}

std::vector<std::string> Ascii(std::span<const double> values, int width, int height) {
  constexpr int kLevels = static_cast<int>(sizeof kMarks) - 1;
  const std::vector<int> levels =
      Levels(Spread(values, static_cast<std::size_t>(width)), height * kLevels);
  std::vector<std::string> lines(static_cast<std::size_t>(height),
                                 std::string(static_cast<std::size_t>(width), ' '));
  for (std::size_t c = 0; c < levels.size(); ++c) {
    if (levels[c] < 0) continue;
    const int row = height - 1 - levels[c] / kLevels;
    lines[static_cast<std::size_t>(row)][c] = kMarks[levels[c] % kLevels];
  }
  return lines;
}

}  // namespace

std::vector<std::string> Chart(std::span<const double> values, int width, int height,
                               Glyphs glyphs) {
  if (width <= 0 || height <= 0) return {};
  return glyphs == Glyphs::kBraille ? Braille(values, width, height) : Ascii(values, width, height);
}

}  // namespace muster
