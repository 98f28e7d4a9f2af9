// What guardian and rank say to each other: names of the environment and the JSON messages on the
// inherited control socket (packet_socket.h). docs/trainer-protocol.md is the description.
//
// The trainer links neither gRPC nor protobuf (LibTorch carries its own), hence JSON packets. The
// worker turns them into muster.v1.TrainerReport; field names are those of
// proto/muster/v1/worker_api.proto.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace muster {

// Descriptors that a rank inherits; each variable holds the descriptor's number.
inline constexpr char kControlFdVariable[] = "MUSTER_CONTROL_FD";
inline constexpr char kProgressFdVariable[] = "MUSTER_PROGRESS_FD";
inline constexpr char kListenFdVariable[] = "MUSTER_LISTEN_FD";  // rank 0 of a train job; store
// 1: this process gets its assignments over the control socket, also the first one.
inline constexpr char kAssignVariable[] = "MUSTER_ASSIGN";
// Path of a JSON array of committed checkpoints, newest first (the manifests' content), from which
// the trainer resumes. Unset: look for manifests in the output directory, as under plain torchrun.
inline constexpr char kResumeFileVariable[] = "MUSTER_RESUME_FILE";
inline constexpr char kJobIdVariable[] = "MUSTER_JOB_ID";
inline constexpr char kGenerationVariable[] = "MUSTER_GENERATION";
inline constexpr char kCheckpointDirVariable[] = "MUSTER_CHECKPOINT_DIR";
// The numeric address that peers reach this rank at. Unset: the one it reaches rank 0 from.
inline constexpr char kBindAddressVariable[] = "MUSTER_BIND_ADDRESS";
// 64 hexadecimal digits that the ranks of a command job's generation share; other users of the node
// cannot read it, a user that may read the process's environment can. Built-in ranks get theirs
// with the assignment instead.
inline constexpr char kRendezvousTokenVariable[] = "MUSTER_RENDEZVOUS_TOKEN";
// 1: the GPUs of this node are fake, so that a job on GPUs trains on the CPU.
inline constexpr char kFakeGpusVariable[] = "MUSTER_FAKE_GPUS";
// Node numbers, "0,2,1,3": each node's snapshots are kept on the next one. Unset: in their order.
inline constexpr char kBuddyRingVariable[] = "MUSTER_BUDDY_RING";

// Exit codes of muster-trainer. The coordinator distinguishes causes from symptoms by them.
inline constexpr int kExitOk = 0;          // done, or stopped as asked with the state saved
inline constexpr int kExitFailure = 1;     // internal or unknown; another attempt may do better
inline constexpr int kExitUsage = 2;       // a wrong command line
inline constexpr int kExitPeerLost = 76;   // a collective failed because another rank went away
inline constexpr int kExitBadInput = 78;   // a bad config, data, model or LibTorch: not retried
inline constexpr int kExitNonFinite = 79;  // loss or gradient norm is NaN or Inf: not retried

// Why a rank has written no checkpoint: "kind" of checkpoint_failed, by its name.
enum class CheckpointTrouble { kOther, kDiskFull, kReadOnly, kIoError, kSlowDisk };
inline constexpr std::array<std::string_view, 5> kCheckpointTroubles = {
    "other", "disk_full", "read_only", "io_error", "slow_disk"};
constexpr std::string_view Name(CheckpointTrouble kind) {
  return kCheckpointTroubles[static_cast<std::size_t>(kind)];
}
constexpr CheckpointTrouble CheckpointTroubleOf(std::string_view name) {
  const auto found = std::ranges::find(kCheckpointTroubles, name);
  return found == kCheckpointTroubles.end()
             ? CheckpointTrouble::kOther
             : static_cast<CheckpointTrouble>(found - kCheckpointTroubles.begin());
}

// Messages, rank to guardian. Each is a JSON object {"type": ..., "generation": g, ...}, where g is
// the generation of the assignment that it belongs to; the guardian drops those of another one.
//   {"type":"formed"}                                the communicator did its first collective
//   {"type":"resumed","step":40,"rejected":[{"directory":"...","reason":"..."}]}
//   {"type":"first_step","step":41}
//   {"type":"shard_written","step":50,"directory":"step-00000050-g2",
//    "shard":{"rank":1,"file":"rank-00001.shard","bytes":123,"checksum":"xxh3:0123456789abcdef"}}
//                                                    and "eval_loss" where this state was evaluated
//   {"type":"checkpoint_failed","step":50,"kind":"disk_full","reason":"..."}
//   {"type":"error","kind":"data","message":"...","step":12}
//   {"type":"note","severity":"warning","message":"3 rows were truncated"}
//   {"type":"finished","step":200,"model_dir":"/abs/out/model"}
//   {"type":"parked","step":40}                      out of the generation, waits for an assignment
//   {"type":"standby_ready"}                         without a generation: loaded, waits for its
//   first
//   {"type":"segment","name":"..."} + descriptor     hold this snapshot segment
//   {"type":"drop_segment","name":"..."}             hold it no longer
//   {"type":"cut","segments":["..."]}                those with a part of the state that the
//                                                    generation goes on from
// Messages, guardian to rank:
//   {"type":"segment","name":"..."} + descriptor     one that the guardian holds; before the assign
//   {"type":"assign","generation":3,"rendezvous_token":"...","environment":["RANK=0",...],
//    "descriptors":["log","listen","lock"]}
//       + those descriptors in that order: `log` replaces standard output and error, `listen` is
//       the rendezvous' listening socket, each `lock` locks a device for as long as it is open:
//       the process keeps it until the next assignment. A process with MUSTER_ASSIGN=1 begins with
//       waiting for one
//   {"type":"park","generation":3,"reason":"..."}    out of the collectives, keep the process
//   {"type":"stop","reason":"..."}                   finish the step, write a checkpoint, exit 0
//   {"type":"fault","kind":"hang-data","argument":""}   kinds: hang-data, hang-collective, nan,
//   oom,
//                                                    slow (argument: a fraction), exit (a code)

}  // namespace muster
