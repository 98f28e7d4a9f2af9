// Runs of the sharded engine with snapshots, the ranks as threads: each run is a generation that
// goes on from what the segments of the ones before it hold.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/parity/gang_run.h"
#include "trainer/ops/operators.h"
#include "trainer/state/snapshot/buddy.h"
#include "trainer/state/snapshot/segment.h"

namespace muster::parity {

// Segments that one rank can read; those that are writable it may train on in.
using HeldSegments = std::vector<std::unique_ptr<Segment>>;

struct SnapshotOptions {
  GangOptions gang;
  Generation generation = 1;
  Step until = 1;  // finished steps at the end
  std::int64_t every = 1;
  BuddyOptions buddy{.wanted = BuddyCopies::kOff};
  // Of steps that are left out, as after NaNs: the step's gradients are not used.
  std::function<bool(Step)> leaves_out;
  // On the rank's thread, before each operator (not what the host does with cpu_offload).
  std::function<void(int rank, const AnyOperator&)> before_operator;
  // On the rank's thread, after every seal.
  std::function<void(int rank, Step step, FsdpEngine&)> after_seal;
};

struct SnapshotRank {
  Status status;
  Step resumed = -1;      // the cut's step; -1: there was none
  bool in_place = false;  // nothing was copied to this rank
  Step sealed = -1;       // at the end
  TrainCursor cursor;     // at the end
  Arrays arrays;          // at the end
  HeldSegments held;      // afterwards: its own first, then what it had not taken on
};

// `held` by rank.
std::vector<SnapshotRank> RunWithSnapshots(const SnapshotOptions& options,
                                           std::vector<HeldSegments> held);

// A segment such as the rank's own.
std::unique_ptr<Segment> MakeOwnSegment(const GangOptions& options, int rank,
                                        Generation lineage = 1);

}  // namespace muster::parity
