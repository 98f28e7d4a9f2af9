// Every flag of torchrun: how it is written, its default, and what becomes of it.
//
// Source: torch/distributed/run.py of PyTorch 2.11, get_args_parser. Constant data; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster {

enum class TorchrunTreatment {
  kTaken,    // the job is made from it
  kNoted,    // Muster does it by itself, or in another way: `why` says so when it is given
  kRefused,  // `why` says what to do instead when it is given another value than the default
};

struct TorchrunFlag {
  std::string_view name;       // long, with dashes
  char letter = 0;             // the short name; 0: none
  bool has_value = true;       // false: a switch, whose value is "1" where it is given
  std::string_view otherwise;  // the value where it is not given
  bool has_variable = true;    // PET_<NAME> gives the value where the command line does not
  TorchrunTreatment treatment = TorchrunTreatment::kTaken;
  std::string_view why;  // of one that is taken: what it gives
};

std::span<const TorchrunFlag> TorchrunFlagTable();

// The table for people: what is taken, what is noted, what is refused and why. Lines, each ended.
std::string TorchrunHelp();

}  // namespace muster
