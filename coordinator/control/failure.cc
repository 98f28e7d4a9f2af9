#include "coordinator/control/failure.h"

#include <csignal>
#include <tuple>

#include "common/base/text.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

// A trainer may report as much as fits into a control message.
constexpr std::size_t kMaxMessageBytes = 2000;

CauseKind KindOf(const TrainerError& error) {
  if (error.kind == "peer_lost") return CauseKind::kPeerLost;
  if (error.kind == "config" || error.kind == "data" || error.kind == "model") {
    return CauseKind::kBadInput;
  }
  if (error.kind == "nonfinite") return CauseKind::kNonFinite;
  if (error.kind == "out_of_memory") return CauseKind::kOutOfMemory;
  return CauseKind::kRankExited;
}

CauseKind KindOf(const ProcessExit& exit) {
  if (exit.signal != 0) return CauseKind::kRankKilled;
  switch (exit.exit_code) {
    case kExitPeerLost: return CauseKind::kPeerLost;
    case kExitUsage:
    case kExitBadInput: return CauseKind::kBadInput;
    case kExitNonFinite: return CauseKind::kNonFinite;
    default: return CauseKind::kRankExited;
  }
}

// The trainer's report is more precise than its exit code. A signal is more precise than a report
// of lost peers, which a rank may have sent just before.
CauseKind KindOf(const RankFailure& failure) {
  if (failure.node_stopped) return CauseKind::kNodeStopped;
  if (failure.out_of_memory) return CauseKind::kOutOfMemory;
  if (!failure.train) {
    return failure.exit && failure.exit->signal != 0 ? CauseKind::kRankKilled
                                                     : CauseKind::kRankExited;
  }
  const CauseKind said = failure.error ? KindOf(*failure.error) : CauseKind::kRankExited;
  if (said != CauseKind::kRankExited && said != CauseKind::kPeerLost) return said;
  if (failure.exit && failure.exit->signal != 0) return CauseKind::kRankKilled;
  if (said == CauseKind::kPeerLost) return said;
  return failure.exit ? KindOf(*failure.exit) : said;
}

std::string Describe(const RankFailure& failure, CauseKind kind) {
  std::string text = "rank " + std::to_string(failure.rank) + " on " + failure.node.value;
  if (kind == CauseKind::kNodeStopped) return "node " + failure.node.value + " was taken down";
  if (kind == CauseKind::kPeerLost) {
    text += " lost contact with its peers";
  } else if (failure.out_of_memory) {
    text += " was killed by the kernel: its memory had run out";
  } else if (kind == CauseKind::kOutOfMemory) {
    text += " ran out of memory";
  } else if (!failure.exit) {
    text += failure.ended ? " reported an error" : " reported an error and did not exit";
  } else if (failure.exit->signal != 0) {
    text += " was killed by " + SignalName(failure.exit->signal);
  } else {
    text += " exited with code " + std::to_string(failure.exit->exit_code);
  }
  if (failure.error && !failure.error->message.empty()) text += ": " + failure.error->message;
  return text;
}

}  // namespace

bool IsSymptom(const TrainerError& error) { return error.kind == "peer_lost" || error.symptom; }

Failure Classify(const RankFailure& rank_failure) {
  RankFailure failure = rank_failure;
  // The guardian's own signal carries no information about the rank.
  if (failure.ended && !failure.out_of_memory && failure.exit && failure.exit->signal != 0)
    failure.exit.reset();
  Failure result;
  result.kind = KindOf(failure);
  result.retryable = result.kind != CauseKind::kBadInput && result.kind != CauseKind::kNonFinite;
  result.rank = failure.rank;
  result.node = failure.node;
  result.exit = failure.exit;
  result.error = failure.error;
  result.out_of_memory = failure.out_of_memory;
  result.message = CutText(Describe(failure, result.kind), kMaxMessageBytes);
  return result;
}

const Failure* PrimaryFailure(const std::vector<Failure>& failures) {
  const Failure* best = nullptr;
  for (const Failure& failure : failures) {
    // Reports of ranks while their peers' nodes are being taken down are consequences of that.
    auto order = [](const Failure& f) {
      return std::tuple(f.kind != CauseKind::kNodeStopped, f.symptom(), f.at, f.rank);
    };
    if (best == nullptr || order(failure) < order(*best)) best = &failure;
  }
  return best;
}

bool IsConsequenceOfAbort(const RankFailure& failure) {
  if (!failure.ended || failure.node_stopped || failure.out_of_memory || !failure.exit)
    return false;
  if (failure.exit->signal != SIGKILL && failure.exit->signal != SIGTERM) return false;
  return !failure.error || IsSymptom(*failure.error);
}

std::string SignalName(int signal) {
  switch (signal) {
    case SIGHUP: return "SIGHUP";
    case SIGINT: return "SIGINT";
    case SIGQUIT: return "SIGQUIT";
    case SIGILL: return "SIGILL";
    case SIGTRAP: return "SIGTRAP";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGKILL: return "SIGKILL";
    case SIGUSR1: return "SIGUSR1";
    case SIGSEGV: return "SIGSEGV";
    case SIGUSR2: return "SIGUSR2";
    case SIGPIPE: return "SIGPIPE";
    case SIGALRM: return "SIGALRM";
    case SIGTERM: return "SIGTERM";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    case SIGSYS: return "SIGSYS";
    default: return "signal " + std::to_string(signal);
  }
}

}  // namespace muster
