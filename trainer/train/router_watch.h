// RouterWatch: says when a router has collapsed, so that most experts of its layer learn nothing.
//
// Two signs, each over many steps, because single ones say little: nearly every token is given the
// same expert, or an expert is given none although by even shares it would have had many. Where a
// token is given every expert there is nothing to decide, and nothing is said.
//
// Pure; the trainer's thread of rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/report/expert_load.h"

namespace muster {

struct RouterSettings {
  bool trained = true;             // routers learn; beside adapters they are frozen
  double balance_coefficient = 0;  // of the loss that punishes uneven loads
};

class RouterWatch {
 public:
  // One expert is given more than this part of all tokens (more still where even shares are large),
  // in so many steps in a row.
  static constexpr double kTaken = 0.9;
  static constexpr int kTakenSteps = 20;
  // An expert is given none, in so many steps in a row and of so many that even shares would give.
  static constexpr int kIdleSteps = 100;
  static constexpr double kIdleTokens = 1000;

  explicit RouterWatch(const RouterSettings& settings) : settings_(settings) {}

  // After each step. A warning when a sign appears; the next of its kind when it has been gone.
  std::optional<std::string> Look(const ExpertLoad& load);

 private:
  std::optional<std::string> LookForTaken(const ExpertLoad& load);
  std::optional<std::string> LookForIdle(const ExpertLoad& load);
  std::string Advice() const;

  struct Unused {
    int steps = 0;
    double tokens = 0;  // that even shares would have given
  };

  const RouterSettings settings_;
  std::vector<int> taken_;      // by layer: steps in a row
  std::vector<Unused> unused_;  // by layer and expert
  bool said_taken_ = false;
  bool said_idle_ = false;
};

}  // namespace muster
