#include "cli/top/text_page.h"

#include <algorithm>
#include <cstdint>

#include "cli/base/terminal.h"

namespace muster {
namespace {

std::string_view Code(Style style) {
  switch (style) {
    case Style::kPlain: return "";
    case Style::kBold: return "\x1b[1m";
    case Style::kDim: return "\x1b[2m";
    case Style::kGood: return "\x1b[32m";
    case Style::kWarn: return "\x1b[33m";
    case Style::kBad: return "\x1b[1;31m";
    case Style::kReverse: return "\x1b[7m";
  }
  return "";
}

}  // namespace

std::string Padded(std::string_view text, std::size_t width) {
  const std::string cut = CutText(text, width);
  return cut + std::string(width - TextWidth(cut), ' ');
}

std::string RightAligned(std::string_view text, std::size_t width) {
  const std::string cut = CutText(text, width);
  return std::string(width - TextWidth(cut), ' ') + cut;
}

TextPage::Line& TextPage::Line::Add(std::string_view text, Style style) {
  const std::string cut = CutText(text, page_.columns() - used_);
  used_ += TextWidth(cut);
  const bool styled = page_.options_.color && style != Style::kPlain && !cut.empty();
  if (styled) text_ += Code(style);
  text_ += cut;
  if (styled) text_ += "\x1b[0m";
  return *this;
}

std::size_t TextPage::columns() const {
  return static_cast<std::size_t>(std::max(options_.columns, 1));
}

std::size_t TextPage::Room(std::size_t reserved) const {
  if (options_.rows <= 0) return SIZE_MAX;
  const std::size_t used = lines_.size() + reserved;
  const auto rows = static_cast<std::size_t>(options_.rows);
  return used < rows ? rows - used : 0;
}

}  // namespace muster
