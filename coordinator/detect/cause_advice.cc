#include "coordinator/detect/cause_advice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <string_view>
#include <vector>

#include "common/base/strings.h"
#include "common/control_pipe/progress_page.h"

namespace muster {
namespace {

// Everything that was reported about the failure, as the text to search.
std::string AllWords(const CauseEvidence& evidence) {
  std::string text = evidence.message;
  if (evidence.error) text += "\n" + evidence.error->message;
  for (const std::string& fact : evidence.facts) text += "\n" + fact;
  for (const std::string& line : evidence.log_tail) text += "\n" + line;
  return AsciiLower(std::move(text));
}

bool Says(const std::string& words, std::initializer_list<std::string_view> any) {
  return std::any_of(any.begin(), any.end(),
                     [&](std::string_view text) { return words.find(text) != std::string::npos; });
}

bool InPhase(const CauseEvidence& evidence, TrainPhase phase) {
  return evidence.last && evidence.last->phase == phase;
}

bool IsOutOfMemory(const CauseEvidence& evidence) {
  return evidence.out_of_memory || evidence.kind == CauseKind::kOutOfMemory;
}

std::string OnNode(const CauseEvidence& evidence) {
  return evidence.node.value.empty() ? "its node" : evidence.node.value;
}

std::string JoinedWith(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

void SayUnsharded(const FsdpSpec& fsdp, int world_size, std::vector<std::string>& items) {
  if (world_size <= 1) return;
  const std::string ranks = std::to_string(world_size) + " ranks";
  switch (fsdp.strategy) {
    case ShardingStrategy::kNoShard:
      items.push_back(
          "nothing is sharded: train.fsdp.strategy: full_shard divides weights, gradients "
          "and optimizer state by " +
          ranks);
      break;
    case ShardingStrategy::kHybridShard:
    case ShardingStrategy::kHybridShardZero2:
      items.push_back(
          "every node holds a whole copy of the state: train.fsdp.strategy: full_shard "
          "divides it by all " +
          ranks);
      break;
    case ShardingStrategy::kShardGradOp:
      items.push_back(
          "unsharded parameters stay for the whole step: train.fsdp.strategy: full_shard keeps "
          "those of two units");
      break;
    case ShardingStrategy::kFullShard: break;
  }
}

bool IsFullCheckpointing(const FsdpSpec& fsdp) {
  return fsdp.activation_checkpointing == ActivationCheckpointing::kFull ||
         fsdp.activation_checkpointing == ActivationCheckpointing::kFullOffload;
}

void SayWideTypes(const TrainSpec& train, std::vector<std::string>& items) {
  const MixedPrecision precision = train.fsdp.mixed_precision;
  if (precision == MixedPrecision::kFp32 || precision == MixedPrecision::kFp64) {
    items.push_back(
        "weights and activations are not in 16 bits: train.fsdp.mixed_precision: bf16 halves "
        "them");
  }
  if (train.optimizer.moments != StateType::kBf16) {
    items.push_back(
        "moments are not quantised: train.optimizer.moments: bf16 saves 4 of 8 bytes per "
        "parameter");
  }
}

void SaySnapshots(const TrainSpec& train, bool on_device, std::vector<std::string>& items) {
  if (on_device || train.snapshot.every == 0) return;
  items.push_back(
      "snapshots hold the state twice: train.snapshot.every: 0 turns them off, and a "
      "fault then costs the steps since the last checkpoint");
}

std::string OutOfMemory(const CauseEvidence& evidence, const JobSpec& spec) {
  // The kernel's out-of-memory killer acts on host memory, whatever the ranks compute on.
  const bool on_device = spec.resources.device == "cuda" && !evidence.out_of_memory;
  const std::string where = on_device ? "The GPU's memory did not suffice"
                                      : "The memory of " + OnNode(evidence) + " did not suffice";
  std::string advice = MemoryAdvice(spec, evidence.world_size, on_device);
  if (!on_device && spec.resources.memory_per_rank > 0)
    advice += std::string(advice.empty() ? "" : " ") +
              "Its ranks may have resources.memory_per_rank each, with what the job holds beside "
              "them on the node.";
  return advice.empty() ? where + "." : where + ". " + advice;
}

// NVIDIA's numbers of GPU faults, and the remedy for each.
struct XidAdvice {
  int xid;
  const char* advice;
};
constexpr std::array kXidAdvice = {
    XidAdvice{13, "A kernel made an illegal access: a fault of the program before one of the GPU."},
    XidAdvice{31, "A kernel made an illegal access: a fault of the program before one of the GPU."},
    XidAdvice{48,
              "Memory with an error that could not be corrected: reset the GPU, and have it "
              "replaced if it comes again."},
    XidAdvice{74,
              "An NVLink failed; the GPU at its other end may be the culprit. Reset both, and "
              "check the bridge or the board."},
    XidAdvice{79,
              "The GPU fell off the bus: boot the node again, and check power and seating if "
              "it comes again."},
    XidAdvice{94,
              "Contained memory error: the rank was lost, the GPU may go on; reset it when "
              "convenient."},
    XidAdvice{95, "Uncontained memory error: reset the GPU before it is used again."},
    XidAdvice{119, "The GPU's system processor does not answer: reset the GPU, or boot the node."},
    XidAdvice{120, "The GPU's system processor failed: reset the GPU, or boot the node."}};

// The number in "xid 79" and in the kernel log's "xid (pci:0000:3b:00): 79".
int XidIn(const std::string& words) {
  std::size_t at = words.find("xid");
  if (at == std::string::npos) return 0;
  if (words.compare(at, 5, "xid (") == 0) at = words.find(')', at);
  if (at == std::string::npos) return 0;
  const std::size_t digit = words.find_first_of("0123456789", at);
  if (digit == std::string::npos) return 0;
  int xid = 0;
  std::from_chars(words.data() + digit, words.data() + words.size(), xid);
  return xid;
}

std::string DeviceFault(const CauseEvidence& evidence, const std::string& words) {
  const int xid = XidIn(words);
  for (const XidAdvice& known : kXidAdvice) {
    if (known.xid == xid) return known.advice;
  }
  return "Look for Xid in the kernel log of " + OnNode(evidence) +
         "; the node takes no ranks until it was mended and undrained.";
}

std::string Signalled(const CauseEvidence& evidence, int signal) {
  switch (signal) {
    case SIGKILL:
      return "Nothing in the job sends SIGKILL: a user killed it, or the kernel did because memory "
             "ran "
             "out; see the kernel log of " +
             OnNode(evidence) + ".";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      return "A user or program on " + OnNode(evidence) + " ended this process with a signal.";
    case SIGBUS:
      return "A page of a mapped file was not there: shared memory (/dev/shm) of " +
             OnNode(evidence) + " may be full, or a model or data file was cut while it was read.";
    case SIGILL:
      return "The program uses instructions that the processor of " + OnNode(evidence) +
             " does not have: build it for this processor, or exclude the node.";
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
      return "The program crashed; if it comes again on this node alone suspect its memory, and "
             "exclude the node (resources.exclude).";
    case SIGXFSZ: return "A limit on the size of files (ulimit -f) was reached.";
    case SIGXCPU: return "A limit on processor time (ulimit -t) was reached.";
    default: return "";
  }
}

std::string Hung(const CauseEvidence& evidence) {
  if (evidence.last && evidence.last->process_state == "T") {
    return "A user or program stopped the process with a signal; a debugger does that too.";
  }
  if (InPhase(evidence, TrainPhase::kData) || InPhase(evidence, TrainPhase::kReadingRows)) {
    return "It stood while it read rows: check the file system that train.data.train lies on, as "
           "seen from " +
           OnNode(evidence) + ".";
  }
  if (InPhase(evidence, TrainPhase::kLoadingFrozen)) {
    return "It stood while it read the frozen weights: check the file system that "
           "train.model.path lies on, as seen from " +
           OnNode(evidence) + ".";
  }
  if (evidence.last && evidence.last->process_state == "D") {
    return "Its process waits in the kernel for a disk or a device: look at the kernel log of " +
           OnNode(evidence) + ".";
  }
  if (InPhase(evidence, TrainPhase::kCheckpoint) || InPhase(evidence, TrainPhase::kExporting)) {
    return "It stood while it wrote: check the file system of the output directory, as seen from " +
           OnNode(evidence) + ".";
  }
  return "If it comes again with the same rank, suspect its node's network or device, and drain "
         "it: muster drain " +
         (evidence.node.value.empty() ? "NODE" : evidence.node.value) + ".";
}

// What the text of a failure reveals, whatever its exit.
std::string FromWords(const std::string& words) {
  if (Says(words, {"no space left", "disk full", "enospc", "disk quota exceeded"})) {
    return "A disk is full: make room where the cause says; where that is the output directory, a "
           "lower train.checkpoint.keep takes less. Committed checkpoints are whole.";
  }
  if (Says(words, {"read-only file system"})) {
    return "The file system was made read-only, which kernels do after an error of its disk: look "
           "at the kernel log.";
  }
  if (Says(words, {"input/output error"})) {
    return "A disk or a network file system failed: look at the kernel log of the node.";
  }
  if (Says(words, {"address already in use"})) {
    return "Another program has the port: let the kernel choose one, or end that program.";
  }
  if (Says(words, {"too many open files"})) {
    return "The limit on open files is too low: raise ulimit -n for the worker.";
  }
  if (Says(words, {"permission denied"})) {
    return "The worker's user may not use this file: check owner and mode.";
  }
  return "";
}

std::string BadInput(const std::string& words) {
  const std::string known = FromWords(words);
  if (!known.empty()) return known;
  return "No other attempt would do better: mend the job file, data or model that the message "
         "names, and submit it again.";
}

std::string NonFinite(const JobSpec& spec) {
  std::string advice =
      "A loss or gradient is NaN or infinite. Lower train.optimizer.lr or lengthen the "
      "warm-up, look at the rows of this step";
  if (spec.train && spec.train->fsdp.mixed_precision == MixedPrecision::kFp16) {
    advice += ", use train.fsdp.mixed_precision: bf16, which has fp32's range";
  }
  if (spec.train && spec.train->optimizer.grad_clip == 0)
    advice += ", turn train.optimizer.grad_clip on";
  return advice + "; train.nonfinite: skip leaves such steps out.";
}

std::string Exited(const CauseEvidence& evidence, const JobSpec& spec, const std::string& words) {
  const int signal = evidence.exit ? evidence.exit->signal : 0;
  // After a crash the last lines are meaningful only if the program raised it itself.
  const bool own_words = signal == 0 || signal == SIGABRT || signal == SIGBUS;
  if (own_words) {
    if (std::string known = FromWords(words); !known.empty()) return known;
  }
  if (signal != 0) return Signalled(evidence, signal);
  if (spec.train || !evidence.exit) return "";
  switch (evidence.exit->exit_code) {
    case 126: return "The command may not be run: check its mode.";
    case 127: return "The command was not found on " + OnNode(evidence) + ": use its full path.";
    default: return "";
  }
}

}  // namespace

std::string MemoryAdvice(const JobSpec& spec, int world_size, bool on_device) {
  if (!spec.train) {
    return "Use fewer ranks per node (resources.ranks_per_node), or nodes with more memory.";
  }
  const TrainSpec& train = *spec.train;
  std::vector<std::string> items;
  SayUnsharded(train.fsdp, world_size, items);
  if (on_device && !train.fsdp.cpu_offload) {
    items.push_back(
        "nothing is offloaded: train.fsdp.cpu_offload: true keeps the state in host memory");
  }
  SaySnapshots(train, on_device, items);
  SayWideTypes(train, items);
  if (!IsFullCheckpointing(train.fsdp)) {
    items.push_back(
        "activations are kept: train.fsdp.activation_checkpointing: full keeps a block's "
        "input alone");
  }
  if (train.batch.per_rank > 1) {
    items.push_back(
        "a micro-batch has " + std::to_string(train.batch.per_rank) +
        " rows: half of train.batch.per_rank with twice the train.batch.accumulation is the same "
        "global batch");
  }
  if (items.empty()) {
    return "Everything is sharded, quantised and recomputed already: use more ranks, nodes with "
           "more memory, or shorter rows (train.data.max_seq_len).";
  }
  return "What may be saved: " + JoinedWith(items, "; ") + ".";
}

std::string AdviceFor(const CauseEvidence& evidence, const JobSpec& spec) {
  if (IsOutOfMemory(evidence)) return OutOfMemory(evidence, spec);
  const std::string words = AllWords(evidence);
  switch (evidence.kind) {
    case CauseKind::kHung: return Hung(evidence);
    case CauseKind::kDeviceFault: return DeviceFault(evidence, words);
    case CauseKind::kNonFinite: return NonFinite(spec);
    case CauseKind::kBadInput: return BadInput(words);
    case CauseKind::kRankKilled:
    case CauseKind::kRankExited: return Exited(evidence, spec, words);
    case CauseKind::kPeerLost:
      return "Connections broke and no process ended: look at the network between the nodes of the "
             "gang.";
    case CauseKind::kNodeLost:
    case CauseKind::kGuardianLost:
      return "Look at power, kernel log and network of " + OnNode(evidence) +
             "; it is used again once its worker has come back.";
    case CauseKind::kFormTimeout:
      return "The ranks did not find each other: check that the nodes reach the address of rank 0, "
             "and that no firewall is between them.";
    case CauseKind::kBadAddress: return "Start the worker with --address.";
    case CauseKind::kPrepareFailed: return FromWords(words);
    case CauseKind::kPrepareTimeout:
    case CauseKind::kLaunchTimeout:
      return "A node took too long to get ready: look at its worker.log, and at the file system of "
             "workdir and output.";
    case CauseKind::kSlowTier:
      return "It came up and did not get to a step in its budget; the next attempt begins with new "
             "processes.";
    case CauseKind::kTimeLimit: return "Raise resources.time_limit if the job is to go on.";
    default: return "";
  }
}

}  // namespace muster
