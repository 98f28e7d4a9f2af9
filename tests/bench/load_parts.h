// What the generators of load have in common: cluster_load and job_load.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "common/base/clock.h"

namespace muster {

// Ends the program.
[[noreturn]] void Fail(const std::string& why);

// That a thread is to end. Any thread.
class Ending {
 public:
  void Begin();
  // Waits until then, or until it has begun; whether it has.
  bool BegunBy(TimePoint when);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
};

double SecondsSince(TimePoint start);
std::string NodeText(int n);

// Credentials of nodes NodeText(0) and so on into folders of that name, as nodes get them that
// join, but all of them with one entry in the register. `dir` is a cluster's after `muster init`.
void IssueCertificates(const std::string& dir, const std::string& credentials, int nodes);

}  // namespace muster
