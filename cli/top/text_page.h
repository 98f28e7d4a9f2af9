// TextPage: lines of styled text that end at the screen's edges.
//
// Lines that do not fit below are dropped, text that does not fit beside is cut. Made for one
// drawing; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top/sparkline.h"

namespace muster {

struct TopViewOptions {
  int columns = 80;
  int rows = 24;  // 0: unlimited
  Glyphs glyphs = Glyphs::kBraille;
  bool color = false;
  bool keys = true;          // with the line that lists the keys
  std::size_t selected = 0;  // of the jobs in `jobs` order
};

enum class Style { kPlain, kBold, kDim, kGood, kWarn, kBad, kReverse };

// Cut or filled with blanks to this width.
std::string Padded(std::string_view text, std::size_t width);
std::string RightAligned(std::string_view text, std::size_t width);

class TextPage {
 public:
  // `options` outlives the page.
  explicit TextPage(const TopViewOptions& options) : options_(options) {}

  // Joins the page when it is destroyed.
  class Line {
   public:
    explicit Line(TextPage& page) : page_(page) {}
    ~Line() {
      if (page_.Room(0) > 0) page_.lines_.push_back(std::move(text_));
    }
    Line& Add(std::string_view text, Style style = Style::kPlain);
    Line& Fill(Style style) { return Add(std::string(page_.columns() - used_, ' '), style); }

   private:
    TextPage& page_;
    std::string text_;
    std::size_t used_ = 0;
  };

  Line NewLine() { return Line(*this); }
  void Empty() { NewLine(); }
  std::size_t columns() const;
  // Lines that still fit when `reserved` are kept for what follows.
  std::size_t Room(std::size_t reserved) const;
  std::vector<std::string> Take() { return std::move(lines_); }
  const TopViewOptions& options() const { return options_; }

 private:
  const TopViewOptions& options_;
  std::vector<std::string> lines_;
};

}  // namespace muster
