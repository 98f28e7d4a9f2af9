// Text: a string of a template, with a mark for every byte of it.
//
// Marks travel with the bytes through every operation, so that the finished text still shows which
// of it came out of the conversation (and must not be read as markup), and which of it stands
// within {% generation %}.
//
// Always valid UTF-8. Value type; at most kMaxTextBytes, beyond which Append throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::jinja {

inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

using Mark = unsigned char;
inline constexpr Mark kPlain = 0;
inline constexpr Mark kInput = 1;    // from the conversation, not from the template
inline constexpr Mark kTrained = 2;  // within {% generation %}

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, Mark mark = kPlain);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  Mark MarkAt(std::size_t i) const {
    return marks_.empty() ? kPlain : static_cast<Mark>(marks_[i]);
  }

  void Append(std::string_view bytes, Mark mark = kPlain);
  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  // The bytes [begin, end) of `other`.
  void AppendPart(const Text& other, std::size_t begin, std::size_t end);
  Text Part(std::size_t begin, std::size_t end) const;
  // Adds the mark to every byte.
  void AddMark(Mark mark);

  // HTML that must not be escaped again (the filters safe and escape). Kept by + only.
  bool safe = false;

 private:
  std::string bytes_;
  std::string marks_;  // one per byte; empty: all plain
};

// Code points, as Python counts them.
std::size_t Length(std::string_view text);
// The byte at which code point `index` begins; the text's size from its end on.
std::size_t OffsetOf(std::string_view text, std::size_t index);
// The byte after the code point that begins at `offset`, and the one before `offset` begins at.
std::size_t NextOffset(std::string_view text, std::size_t offset);
std::size_t PreviousOffset(std::string_view text, std::size_t offset);
std::int32_t CodePointAt(std::string_view text, std::size_t offset);
void AppendCodePoint(std::string* out, std::int32_t code_point);
bool IsValidUtf8(std::string_view text);

// Python's str.isspace.
bool IsSpace(std::int32_t code_point);
bool IsAlphabetic(std::int32_t code_point);
bool IsDigit(std::int32_t code_point);
// Whether repr shows it as it is.
bool IsPrintable(std::int32_t code_point);
bool IsUpper(std::int32_t code_point);
bool IsLower(std::int32_t code_point);
// Case by Unicode's simple mappings, and the sharp s, whose upper case is SS.
void AppendUpper(std::string* out, std::int32_t code_point);
void AppendLower(std::string* out, std::int32_t code_point);

// How str.strip cuts: [begin, end) without leading (left) and trailing (right) code points that are
// in `characters`; empty and not `given`: white space.
struct StripOptions {
  bool left = true;
  bool right = true;
  bool given = false;
  std::string_view characters = {};
};
struct Interval {
  std::size_t begin;
  std::size_t end;
};
Interval Stripped(std::string_view text, const StripOptions& options);

// The lines of str.splitlines, without their ends.
std::vector<Interval> SplitLines(std::string_view text);

}  // namespace muster::jinja
