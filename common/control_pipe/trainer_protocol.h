// What guardian and rank say to each other: names of the environment and the JSON messages on the
// inherited control socket (packet_socket.h). docs/trainer-protocol.md is the description.
//
// The trainer links neither gRPC nor protobuf (LibTorch carries its own), hence JSON packets. The
// worker turns them into muster.v1.TrainerReport; field names are those of
// proto/muster/v1/worker_api.proto.
#pragma once

namespace muster {

// Descriptors that a rank inherits; each variable holds the descriptor's number.
inline constexpr char kControlFdVariable[] = "MUSTER_CONTROL_FD";
inline constexpr char kProgressFdVariable[] = "MUSTER_PROGRESS_FD";
inline constexpr char kListenFdVariable[] = "MUSTER_LISTEN_FD";  // rank 0 of a train job; store
// Path of a JSON array of committed checkpoints, newest first (the manifests' content), from which
// the trainer resumes. Unset: look for manifests in the output directory, as under plain torchrun.
inline constexpr char kResumeFileVariable[] = "MUSTER_RESUME_FILE";
inline constexpr char kJobIdVariable[] = "MUSTER_JOB_ID";
inline constexpr char kGenerationVariable[] = "MUSTER_GENERATION";
inline constexpr char kCheckpointDirVariable[] = "MUSTER_CHECKPOINT_DIR";

// Exit codes of muster-trainer. The coordinator tells causes from symptoms by them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // internal or unknown; another attempt may do better
inline constexpr int kExitUsage = 2;
inline constexpr int kExitPeerLost = 76;   // a collective failed because another rank went away
inline constexpr int kExitBadInput = 78;   // config, data or model files: no attempt does better
inline constexpr int kExitNonFinite = 79;  // loss or gradient norm is NaN or Inf: not retried

// Messages, rank to guardian. Each is a JSON object {"type": ..., ...}:
//   {"type":"formed"}                                the communicator did its first collective
//   {"type":"resumed","step":40,"rejected":[{"directory":"...","reason":"..."}]}
//   {"type":"first_step","step":41}
//   {"type":"shard_written","step":50,"directory":"step-00000050-g2",
//    "shard":{"rank":1,"file":"rank-00001.shard","bytes":123,"checksum":"xxh3:0123456789abcdef"}}
//   {"type":"checkpoint_failed","step":50,"reason":"..."}
//   {"type":"error","kind":"data","message":"...","step":12}
//   {"type":"note","severity":"warning","message":"3 rows were truncated"}
//   {"type":"finished","step":200,"model_dir":"/abs/out/model"}
// Messages, guardian to rank:
//   {"type":"stop","reason":"..."}                   finish the step, write a checkpoint, exit 0

}  // namespace muster
