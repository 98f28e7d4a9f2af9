#include "common/resources/node_demand.h"

#include <algorithm>
#include <sstream>

#include "common/base/strings.h"

namespace muster {

bool LabelRule::Allows(const std::map<std::string, std::string>& labels) const {
  const auto label = labels.find(key);
  const bool is_there = label != labels.end();
  const bool listed = is_there && std::ranges::find(values, label->second) != values.end();
  switch (kind) {
    case Kind::kIn: return listed;
    case Kind::kNotIn: return !listed;
    case Kind::kExists: return is_there;
    case Kind::kAbsent: return !is_there;
  }
  return false;
}

std::string LabelRule::Text() const {
  switch (kind) {
    case Kind::kIn:
      return values.size() == 1 ? key + "=" + values.front() : key + " in (" + Join(values) + ")";
    case Kind::kNotIn: return key + " not in (" + Join(values) + ")";
    case Kind::kExists: return key;
    case Kind::kAbsent: return "no " + key;
  }
  return key;
}

bool IsKind(std::string_view kind, std::string_view wanted) {
  const std::string name = AsciiLower(std::string(kind));
  const std::string word = AsciiLower(std::string(wanted));
  if (name == word) return true;
  std::istringstream words(name);
  for (std::string each; words >> each;) {
    // "A100-SXM4-80GB" is an A100.
    if (each == word || each.starts_with(word + "-")) return true;
  }
  return false;
}

}  // namespace muster
