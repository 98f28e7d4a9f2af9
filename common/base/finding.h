// Finding: what one check of a doctor says about a machine or a cluster, for people and scripts.
//
// A value; any thread.
#pragma once

#include <string>

namespace muster {

enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // a short name that stays: "requeue-delay"
  Verdict verdict = Verdict::kOk;
  std::string what;          // what is so, and why it matters
  std::string change;        // what to do about it; empty where nothing has to be done
  std::string command = "";  // a line for a shell that does it; empty where no line can

  friend bool operator==(const Finding&, const Finding&) = default;
};

}  // namespace muster
