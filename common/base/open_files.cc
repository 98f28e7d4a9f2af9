#include "common/base/open_files.h"

#include <algorithm>

namespace muster {
namespace {

constexpr rlim_t kMost = 1 << 20;

std::optional<rlimit>& Before() {
  static std::optional<rlimit> before;
  return before;
}

}  // namespace

void RaiseOpenFilesLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  const rlimit raised{wanted, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) Before() = limit;
}

std::optional<rlimit> OpenFilesLimitBefore() { return Before(); }

}  // namespace muster
