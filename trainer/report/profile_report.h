// What a profile says: a table of phases and ranks, the rank that the others wait for, the slowest
// unit, and a trace of all ranks for Perfetto or chrome://tracing.
//
// The numbers of all ranks are gathered by a few small collectives; the trace goes to rank 0 one
// rank after the other. Rank 0 writes
//   <directory>/trace.json   Chrome's trace event format; a process per rank
//   <directory>/table.json   the table, milliseconds per step
#pragma once

#include <array>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/report/profiler.h"

namespace muster {

// Equal on all ranks. Milliseconds per step.
struct ProfileTable {
  struct Rank {
    std::array<double, kTracePhaseCount> phases = {};
    double total = 0;

    // For the other ranks: the gathers' and the reductions'.
    double Waits() const;
    // What belongs to no phase.
    double Other() const;
  };
  struct Unit {
    std::string name;  // as this rank calls it
    double mean = 0;   // over the ranks
  };

  Step first_step = 0;
  std::int64_t steps = 0;
  std::vector<Rank> ranks;
  std::vector<Unit> units;

  // Index of the rank that waits least: the others wait for it. -1 with one rank.
  int SlowestRank() const;
  // -1 without units.
  int SlowestUnit() const;
};

// Collective; the trainer's thread. Fails as collectives do.
Result<ProfileTable> GatherProfile(const Profiler& profiler, Communicator& communicator);

// Collective. Rank 0 writes both files; what it could not write is reported in `written` and is no
// reason for the others to stop. Fails as collectives do.
Status WriteProfile(const Profiler& profiler, const ProfileTable& table,
                    const std::string& directory, Communicator& communicator, Status* written);

// For people: the table as lines, with the slowest rank and unit named.
std::string ProfileText(const ProfileTable& table);
std::string ProfileJson(const ProfileTable& table);

}  // namespace muster
