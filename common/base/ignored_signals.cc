#include "common/base/ignored_signals.h"

#include <signal.h>

namespace muster {

bool IsIgnored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

std::vector<int> IgnoredNotices() {
  std::vector<int> ignored;
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2})
    if (IsIgnored(signal)) ignored.push_back(signal);
  return ignored;
}

}  // namespace muster
