// The messages between worker and guardian: JSON packets (common/control_pipe/packet_socket.h) on
// the guardian's named socket, or on the descriptor that the worker passes at its start.
// docs/worker-protocol.md has the sequence.
//
// A new connection gets the guardian's whole state as the same events that a live connection would
// have carried, between Hello and Synced. So the loss of a connection loses nothing, and the
// guardian drops one that does not read. Plain values and pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/version_table.h"
#include "common/process/exit_status.h"

namespace muster {

// Names below the guardian's directory DIR/nodes/NAME/jobs/JOB.
inline constexpr char kGuardianSocketName[] = "guardian.sock";
// Locked while the guardian lives:
// {"pid","start_time","boot_id","job","generation","cgroup"}.
inline constexpr char kGuardianRecordName[] = "guardian.json";
inline constexpr char kGuardianLogName[] = "guardian.log";

// Numbers of the descriptors that a rank inherits; the worker puts them into its environment.
inline constexpr int kRankControlFd = 3;
inline constexpr int kRankProgressFd = 4;
inline constexpr int kRankListenFd = 5;  // of the store; a rank with a control socket gets it there
// And from this one on the locks of its devices, which no variable names. A script's own
// redirections are below it.
inline constexpr int kRankFirstLockFd = 64;  // then those of secrets that are files

// The rank number of the auxiliary store process of a command job.
inline constexpr int kStoreRank = -1;

// Limit of segments per rank of the node: own and buddy's, of the cut that the newest gang
// continues from and of its training, and frozen weights. Beyond it, segments of gangs that never
// formed are dropped.
inline constexpr std::size_t kSegmentsPerRank = 5;
inline constexpr std::size_t kMaxSegmentName = 200;

// --- worker to guardian ---

enum class MasterSocket {
  kNone,      // another node hosts rank 0
  kListen,    // bound and listening; inherited by rank 0 or by the store
  kBindOnly,  // bound, released right before the first rank starts: its program binds the port
};

struct GuardianPrepare {
  Generation generation = 0;
  MasterSocket master = MasterSocket::kNone;
  std::string bind_address;
  bool spare = false;  // nothing is launched: parked processes have nothing to wait for
  // All that the job has on this node, by id: locked before the answer (device_locks.h).
  std::vector<std::string> devices;
  // Host memory that all processes of the job on this node may have together, where the kernel can
  // be made to see to it (worker/process/cgroup.h); 0: not limited.
  std::uint64_t memory_limit_bytes = 0;

  friend bool operator==(const GuardianPrepare&, const GuardianPrepare&) = default;
};

// Gives a rank of the prepared generation a process: one that waits for an assignment if the rank
// has a control socket (docs/recovery.md says which), else a new one. No effect on a rank that has
// one.
struct GuardianLaunch {
  Generation generation = 0;
  int rank = 0;                          // or kStoreRank
  std::vector<std::string> argv;         // argv[0] is looked up in the environment's PATH
  std::vector<std::string> environment;  // all of it
  std::string working_directory;
  std::string log_path;
  bool control = false;  // it inherits a control socket and a progress page
  bool listen = false;   // it gets the listening socket
  // All ranks that this node launches in this generation: a parked process that had one of them is
  // left to it, and parked processes are ended when all have arrived.
  std::vector<int> node_ranks;
  std::vector<int> cpus;  // processors that it is bound to; empty: those of the guardian
  int memory_node = -1;   // NUMA node that its memory comes from first; -1: any
  // For a rank with a control socket, which gets it with its assignment; secret. Every user of the
  // node may read an environment.
  std::string rendezvous_token;
  std::vector<std::string> devices;  // of those prepared, whose locks its process gets

  friend bool operator==(const GuardianLaunch&, const GuardianLaunch&) = default;
};

struct GuardianAbort {
  Generation generation = 0;
  double grace_seconds = 0;
  std::string reason;
  double park_seconds = 0;      // 0: keep no process
  std::vector<int> kill_ranks;  // not to be kept
  // Bound once the generation has ended and processes are kept: for the next one's rank 0.
  MasterSocket next_master = MasterSocket::kNone;
  std::string next_bind_address;

  friend bool operator==(const GuardianAbort&, const GuardianAbort&) = default;
};

// From now on this many processes must wait for an assignment, besides parked ones; the guardian
// starts and replaces them (docs/recovery.md says when). `launch` describes how: its generation and
// rank mean nothing. Replaces an earlier one.
struct GuardianStandby {
  int count = 0;
  bool at_once = false;  // a spare node: nothing that runs here could be slowed down
  int first = 0;         // to be there, before the first rank is launched, for the ranks themselves
  GuardianLaunch launch;

  friend bool operator==(const GuardianStandby&, const GuardianStandby&) = default;
};

// To all ranks: `stop` where they have a control socket, else SIGTERM.
struct GuardianStop {
  Generation generation = 0;
  std::string reason;

  friend bool operator==(const GuardianStop&, const GuardianStop&) = default;
};

// Causes a fault in a rank: kill, stop (SIGSTOP) and cont are signals of the guardian, everything
// else is passed on over the control socket.
struct GuardianFault {
  Generation generation = 0;
  int rank = 0;
  std::string kind;
  std::string argument;

  friend bool operator==(const GuardianFault&, const GuardianFault&) = default;
};

// Carries a segment's descriptor that an earlier guardian of the job held.
struct GuardianHold {
  std::string name;

  friend bool operator==(const GuardianHold&, const GuardianHold&) = default;
};

// Carries the descriptor of the job's secrets (worker/process/secret_file.h) for the ranks that
// start from now on. Replaces an earlier one.
struct GuardianSecrets {
  friend bool operator==(const GuardianSecrets&, const GuardianSecrets&) = default;
};

// Answered by GuardianAlive. Only for a guardian whose Hello announces it.
struct GuardianPing {
  friend bool operator==(const GuardianPing&, const GuardianPing&) = default;
};

// Ends everything and exits.
struct GuardianRelease {
  friend bool operator==(const GuardianRelease&, const GuardianRelease&) = default;
};

using GuardianCommand =
    std::variant<GuardianPrepare, GuardianLaunch, GuardianAbort, GuardianRelease, GuardianStandby,
                 GuardianStop, GuardianFault, GuardianHold, GuardianSecrets, GuardianPing>;

// --- guardian to worker ---

// What a guardian speaks that names none.
inline constexpr VersionRange kFirstPackets{1, 1};

struct GuardianHello {
  std::int64_t pid = 0;
  std::string job;
  Generation generation = 0;  // newest seen; 0: none
  bool answers_pings = false;
  VersionRange packets = kFirstPackets;  // that it sends and understands

  friend bool operator==(const GuardianHello&, const GuardianHello&) = default;
};

struct GuardianPrepared {
  Generation generation = 0;
  std::string error;    // empty: prepared
  int master_port = 0;  // 0: this guardian does not host the master

  friend bool operator==(const GuardianPrepared&, const GuardianPrepared&) = default;
};

// Carries the rank's progress page as a descriptor if it has one.
struct GuardianRankStarted {
  Generation generation = 0;
  int rank = 0;
  std::int64_t pid = 0;

  friend bool operator==(const GuardianRankStarted&, const GuardianRankStarted&) = default;
};

struct GuardianRankExited {
  Generation generation = 0;
  int rank = 0;
  RankEnd end;
  double age_seconds = 0;  // since the end, when this was sent
  std::vector<std::string> log_tail;

  friend bool operator==(const GuardianRankExited&, const GuardianRankExited&) = default;
};

// A message of a rank's control socket (common/control_pipe/trainer_protocol.h), unchanged.
struct GuardianReport {
  Generation generation = 0;
  int rank = 0;
  std::string json;

  friend bool operator==(const GuardianReport&, const GuardianReport&) = default;
};

struct GuardianQuiesced {
  Generation generation = 0;
  std::vector<std::int64_t> unkillable_pids;
  std::vector<int> parked_ranks;  // out of the generation; their processes wait
  int standbys = 0;               // processes that are left without a rank
  int next_master_port = 0;       // bound for the next generation; 0: none

  bool keeps_any() const { return !parked_ranks.empty() || standbys > 0; }

  friend bool operator==(const GuardianQuiesced&, const GuardianQuiesced&) = default;
};

// The guardian holds a snapshot segment (docs/recovery.md). Carries its descriptor, so that the
// worker can give it to the guardian's successor.
struct GuardianSegment {
  std::string name;
  bool dropped = false;  // held no longer; without a descriptor

  friend bool operator==(const GuardianSegment&, const GuardianSegment&) = default;
};

// End of the replay.
struct GuardianSynced {
  friend bool operator==(const GuardianSynced&, const GuardianSynced&) = default;
};

struct GuardianAlive {
  friend bool operator==(const GuardianAlive&, const GuardianAlive&) = default;
};

// A command came for a generation that is not the newest, or in the wrong state.
struct GuardianRefused {
  Generation generation = 0;
  Generation newest = 0;
  std::string message;

  friend bool operator==(const GuardianRefused&, const GuardianRefused&) = default;
};

using GuardianEvent = std::variant<GuardianHello, GuardianPrepared, GuardianRankStarted,
                                   GuardianRankExited, GuardianReport, GuardianQuiesced,
                                   GuardianSegment, GuardianSynced, GuardianRefused, GuardianAlive>;

std::string Encode(const GuardianCommand& command);
std::string Encode(const GuardianEvent& event);
// kUnimplemented: a type that only another version knows; the receiver goes on without it.
Result<GuardianCommand> DecodeGuardianCommand(std::string_view packet);
Result<GuardianEvent> DecodeGuardianEvent(std::string_view packet);

// Content of an exit record, DIR/nodes/NAME/jobs/JOB/exits/gGENERATION-rank-RANK.json.
std::string ExitRecordName(Generation generation, int rank);
// An empty file, present if a signal ended the guardian while it had this generation: the ranks
// that it had not launched yet did not fail either.
std::string StoppedRecordName(Generation generation);
std::string EncodeExitRecord(const GuardianRankExited& exited);
Result<GuardianRankExited> DecodeExitRecord(std::string_view text);

}  // namespace muster
