// What the supervisors of one allocation send each other.
//
// Plain values; any thread. docs/slurm.md describes how they work together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::worker {

// A supervisor of this run of the allocation: a task of srun, one per node.
struct Member {
  int index = -1;  // SLURM_NODEID; the lowest live one leads
  std::string node;
  std::string address;     // HOST:PORT, numeric, where it answers heartbeats
  bool has_worker = true;  // false: a node without GPUs, for the coordinator only

  friend bool operator==(const Member&, const Member&) = default;
};

// The leader: the supervisor whose node runs the coordinator.
struct Leadership {
  std::uint64_t epoch = 0;  // of its coordinator; 0: no leader
  Member leader;
  std::string grpc;  // of the coordinator, HOST:PORT
  std::string http;

  friend bool operator==(const Leadership&, const Leadership&) = default;
};

// How the allocation ends when its work is over or cannot continue.
enum class EndAction {
  kLeave,    // everything is done, or nothing more can be: the tasks end
  kRequeue,  // work is left: the same job is to run again, elsewhere or later
};

struct Ending {
  int exit_code = 0;  // docs/slurm.md: 0, 10, 11, 75 or of sysexits
  EndAction action = EndAction::kLeave;
  std::string reason;                // for people, a sentence
  std::vector<std::string> exclude;  // nodes that a requeued job should not get

  friend bool operator==(const Ending&, const Ending&) = default;
};

struct PeerView {
  Member self;
  int run = 0;  // SLURM_RESTART_COUNT: a requeued job's supervisors ignore those of older runs
  Leadership leadership;
  bool leader_answers = false;  // this supervisor's questions
  bool unfit = false;           // could not bring a coordinator up on its node
  double stop_seconds = -1;     // until this node must have ended; negative: unknown
  std::string stop_reason;
  std::optional<Ending> ending;
};

}  // namespace muster::worker
