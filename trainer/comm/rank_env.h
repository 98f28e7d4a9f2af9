// RankEnv: what a rank reads from its environment, once, at its start.
//
// The names are torchrun's (RANK, WORLD_SIZE, MASTER_ADDR ...) and those that Muster's guardian
// adds (common/control_pipe/trainer_protocol.h), so the same program runs under Muster, torchrun
// and srun. With none of them set it is a job of one process. A plain value; reading it is pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "trainer/comm/communicator.h"

namespace muster {

inline constexpr char kShmDisableVariable[] = "MUSTER_SHM_DISABLE";

struct RankEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_address;
  int master_port = 0;
  // TORCHELASTIC_USE_AGENT_STORE: another process serves the store, rank 0 is a client as well.
  bool agent_store = false;
  // MUSTER_GENERATION; else TORCHELASTIC_RESTART_COUNT + 1; else 1.
  Generation generation = 1;
  std::string job_id;  // MUSTER_JOB_ID, else TORCHELASTIC_RUN_ID, else empty
  // Inherited descriptors, not owned; -1: not given. Each must be taken once.
  int listen_fd = -1;
  int control_fd = -1;
  int progress_fd = -1;
  // The generation's; empty: none. By the assignment alone, since an environment is no secret.
  std::string rendezvous_token;
  std::string bind_address;    // MUSTER_BIND_ADDRESS; empty: the one that leads to the master
  std::string resume_file;     // empty: look for manifests on disk
  std::string checkpoint_dir;  // MUSTER_CHECKPOINT_DIR; empty: <output>/checkpoints
  bool fake_gpus = false;      // MUSTER_FAKE_GPUS: a job on GPUs trains on the CPU
  // MUSTER_BUDDY_RING: each node's number once; empty: in their order.
  std::vector<int> buddy_ring;
  // COLLECTIVE_TIMEOUT_SECONDS, which a job may set: then an operation that a stopped peer holds up
  // fails.
  int collective_timeout_s = 600;
};

// `get` is std::getenv or a test's stand-in; it returns nullptr for what is not set.
using GetEnv = std::function<const char*(const char*)>;

// kInvalidArgument names the variable, its value and what it must be.
Result<RankEnv> ReadRankEnv(const GetEnv& get);

// Whether this rank must not share memory with others: MUSTER_SHM_DISABLE is on (ReadSwitch). Asked
// each time that a group or a snapshot is made.
Result<bool> SharedMemoryDisabled(const GetEnv& get);

// Where this rank meets the others. Takes over env.listen_fd: call it once per process.
Rendezvous TakeRendezvous(RankEnv* env);

}  // namespace muster
