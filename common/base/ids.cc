#include "common/base/ids.h"

namespace muster {

bool FollowsNameRule(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

}  // namespace muster
