#include "common/slurm/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace muster::slurm {
namespace {

// Digits of a number in a range: what 64 bits hold with certainty.
constexpr std::size_t kMaxDigits = 18;
// Limit of a name; more than any resolver takes.
constexpr std::size_t kMaxNameBytes = 255;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameCharacter(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.';
}

std::uint64_t Number(std::string_view digits) {
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::string Padded(std::uint64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// One pass from left to right. Every list of names that it holds on the way is bounded by
// max_hosts, so that "[1-9][1-9]..." ends before it has cost anything.
class Parser {
 public:
  Parser(std::string_view text, std::size_t max_hosts) : text_(text), max_hosts_(max_hosts) {}

  Result<std::vector<std::string>> Run() {
    std::vector<std::string> hosts;
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> names, Names());
      if (hosts.size() + names.size() > max_hosts_) return TooMany();
      for (std::string& name : names) hosts.push_back(std::move(name));
      if (AtEnd()) return hosts;
      ++at_;  // a comma: Names() stops at nothing else
    }
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }

  Status Wrong(const std::string& what) const {
    return InvalidArgument("node list '" + std::string(text_.substr(0, 200)) + "': column " +
                           std::to_string(at_ + 1) + ": " + what);
  }

  Status TooMany() const {
    return ResourceExhausted("node list '" + std::string(text_.substr(0, 200)) +
                             "' has more than " + std::to_string(max_hosts_) + " nodes");
  }

  Status TooLong(std::size_t from) {
    at_ = from;
    return Wrong("a node's name has " + std::to_string(kMaxNameBytes) + " characters at most");
  }

  // All names of one element, up to the comma behind it or the end.
  Result<std::vector<std::string>> Names() {
    const std::size_t begin = at_;
    std::vector<std::string> names = {""};
    while (!AtEnd() && text_[at_] != ',') {
      if (text_[at_] == '[') {
        MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                                Bracket(max_hosts_ / names.size()));
        names = Combine(names, numbers);
      } else {
        MUSTER_ASSIGN_OR_RETURN(const std::string_view letters, Letters());
        for (std::string& name : names) name += letters;
      }
      if (std::ranges::any_of(names, [](const auto& name) { return name.size() > kMaxNameBytes; }))
        return TooLong(begin);
    }
    if (at_ == begin) return Wrong("expected a node's name");
    return names;
  }

  Result<std::string_view> Letters() {
    const std::size_t from = at_;
    while (!AtEnd() && IsNameCharacter(text_[at_])) ++at_;
    if (at_ == from)
      return Wrong("a node's name has letters, digits, '.', '_', '-' and brackets with numbers");
    if (at_ - from > kMaxNameBytes) return TooLong(from);
    return text_.substr(from, at_ - from);
  }

  static std::vector<std::string> Combine(const std::vector<std::string>& names,
                                          const std::vector<std::string>& numbers) {
    std::vector<std::string> combined;
    combined.reserve(names.size() * numbers.size());
    for (const std::string& name : names)
      for (const std::string& number : numbers) combined.push_back(name + number);
    return combined;
  }

  // "[1-3,07]": its numbers as they are written.
  Result<std::vector<std::string>> Bracket(std::size_t room) {
    std::vector<std::string> numbers;
    do {
      ++at_;  // the bracket, or a comma in it
      MUSTER_RETURN_IF_ERROR(Range(room, numbers));
    } while (!AtEnd() && text_[at_] == ',');
    if (AtEnd() || text_[at_] != ']') return Wrong("expected ',' or ']'");
    ++at_;
    return numbers;
  }

  Status Range(std::size_t room, std::vector<std::string>& numbers) {
    const std::size_t begin = at_;
    MUSTER_ASSIGN_OR_RETURN(const std::string_view low, Digits());
    std::string_view high = low;
    if (!AtEnd() && text_[at_] == '-') {
      ++at_;
      MUSTER_ASSIGN_OR_RETURN(high, Digits());
    }
    const std::uint64_t first = Number(low), last = Number(high);
    if (last < first) {
      at_ = begin;
      return Wrong("the range ends below its begin");
    }
    if (last - first >= room || numbers.size() + (last - first) >= room) return TooMany();
    for (std::uint64_t number = first; number <= last; ++number)
      numbers.push_back(Padded(number, low.size()));
    return OkStatus();
  }

  Result<std::string_view> Digits() {
    const std::size_t from = at_;
    while (!AtEnd() && IsDigit(text_[at_])) ++at_;
    if (at_ == from) return Wrong("expected a number");
    if (at_ - from > kMaxDigits) {
      at_ = from;
      return Wrong("a number has " + std::to_string(kMaxDigits) + " digits at most");
    }
    return text_.substr(from, at_ - from);
  }

  std::string_view text_;
  std::size_t max_hosts_;
  std::size_t at_ = 0;
};

// Names that differ by the number at their end only, side by side.
struct Group {
  std::string prefix;
  std::string ranges;  // "1-3,7"; empty: the prefix is the whole name
  bool several = false;
};

// A range that may still grow.
struct OpenRange {
  std::string low;
  std::string high;
};

std::string Text(const Group& group) {
  if (group.ranges.empty()) return group.prefix;
  return group.several ? group.prefix + "[" + group.ranges + "]" : group.prefix + group.ranges;
}

void CloseRange(Group& group, OpenRange& range) {
  if (range.low.empty()) return;
  if (!group.ranges.empty()) {
    group.ranges += ",";
    group.several = true;
  }
  group.ranges += range.low;
  if (range.high != range.low) {
    group.ranges += "-" + range.high;
    group.several = true;
  }
  range = {};
}

// Whether the number `digits` stands where a range from `range.low` prints its next one.
bool Continues(const OpenRange& range, std::string_view digits) {
  return !range.low.empty() && Padded(Number(range.high) + 1, range.low.size()) == digits;
}

}  // namespace

Result<std::vector<std::string>> ExpandHostlist(std::string_view hostlist, std::size_t max_hosts) {
  return Parser(hostlist, max_hosts).Run();
}

std::string CompressHostlist(const std::vector<std::string>& hosts) {
  std::string text;
  Group group;
  OpenRange range;
  bool begun = false;
  const auto close = [&] {
    if (!begun) return;
    CloseRange(group, range);
    if (!text.empty()) text += ",";
    text += Text(group);
  };
  for (const std::string& host : hosts) {
    std::size_t split = host.size();
    while (split > 0 && IsDigit(host[split - 1]) && host.size() - split < kMaxDigits - 1) --split;
    const std::string_view digits = std::string_view(host).substr(split);
    const std::string_view prefix = std::string_view(host).substr(0, split);
    if (!begun || digits.empty() || range.low.empty() || prefix != group.prefix) {
      close();
      group = {.prefix = std::string(prefix), .ranges = "", .several = false};
      range = {std::string(digits), std::string(digits)};
      begun = true;
    } else if (Continues(range, digits)) {
      range.high = digits;
    } else {
      CloseRange(group, range);
      range = {std::string(digits), std::string(digits)};
    }
  }
  close();
  return text;
}

Result<std::vector<int>> ExpandCounts(std::string_view counts, std::size_t max_nodes) {
  const auto wrong = [counts] {
    return InvalidArgument("'" + std::string(counts.substr(0, 200)) +
                           "' is not a list of counts per node such as 2(x3),1");
  };
  std::vector<int> expanded;
  const char* at = counts.data();
  const char* const end = at + counts.size();
  for (;;) {
    int count = 0, times = 1;
    auto read = std::from_chars(at, end, count);
    if (read.ec != std::errc() || count < 0) return wrong();
    at = read.ptr;
    if (std::string_view(at, static_cast<std::size_t>(end - at)).starts_with("(x")) {
      read = std::from_chars(at + 2, end, times);
      if (read.ec != std::errc() || times < 1 || read.ptr == end || *read.ptr != ')')
        return wrong();
      at = read.ptr + 1;
    }
    if (static_cast<std::size_t>(times) > max_nodes - expanded.size())
      return ResourceExhausted("'" + std::string(counts.substr(0, 200)) + "' has more than " +
                               std::to_string(max_nodes) + " nodes");
    expanded.insert(expanded.end(), static_cast<std::size_t>(times), count);
    if (at == end) return expanded;
    if (*at != ',') return wrong();
    ++at;
  }
}

}  // namespace muster::slurm
