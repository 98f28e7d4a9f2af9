// Curves in characters: Braille, whose cells have 2 columns of 4 dots (Unicode block U+2800), or,
// where the terminal's character set has none, one of eight marks for each column.
//
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace muster {

enum class Glyphs { kBraille, kAscii };

// `height` lines of `width` characters each, the first one on top. The values are spread over the
// width, several of them as their mean; gaps (what is not finite) stay empty. The lowest value is
// on the bottom and the highest on top; a curve without any height lies in the middle.
std::vector<std::string> Chart(std::span<const double> values, int width, int height,
                               Glyphs glyphs);

}  // namespace muster
