// Which problems of a cluster need an operator, the worst first, in words. The status page and
// `muster top` put in what each knows, and so say the same.
//
// The worst is where GPU time is lost now and will be until an operator acts, then what mends
// itself, then what is over, then what may become something.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

enum class ProblemSeverity { kError, kWarning, kInfo };

// The worst first.
enum class ProblemKind {
  kNoAnswer,     // of the coordinator, so that nothing else is known
  kNotFinite,    // trains on without learning anything
  kNoProgress,   // has its ranks, and no step ends
  kUnsaved,      // trains, and what it does would be lost
  kRecovering,   // ends by itself, as long as there are nodes
  kNotStarting,  // has its slots, and no first step
  kNodeLost,
  kFailed,  // over; its slots are free again
  kDamagedCheckpoint,
  kStraggler,
  kNodeNotice,
  kWaiting,
};
ProblemSeverity SeverityOf(ProblemKind kind);
std::string_view Name(ProblemSeverity severity);  // "error", "warning", "info"

struct Problem {
  ProblemKind kind = ProblemKind::kWaiting;
  std::string text;     // a sentence without its full stop, which begins with a small letter
  std::string command;  // to type next
  std::string job;      // its id; empty: not of a job
};

// Views of the facts are their owner's texts and must live as long as the call.

struct RankFacts {
  int rank = 0;
  std::string_view node;
  std::int64_t step = 0;  // finished
  std::string phase;
};

// That makes the others wait, by the coordinator's verdict.
struct SlowRank {
  int rank = 0;
  std::string_view node;
  double seconds = 0;         // of its own work per step
  double others_seconds = 0;  // the median of the others
};

struct JobFacts {
  enum class State { kWaiting, kStarting, kRunning, kRecovering, kFailed, kOther };
  State state = State::kOther;
  std::string_view id;
  std::string_view name;         // empty: it has none
  std::string reason;            // of its state; of a job that runs: what is wrong all the same
  double state_seconds = -1;     // since it recovers, starts or has failed; negative: not known
  std::int64_t step = 0;         // newest finished one
  double loss = 0;               // of it
  double silent_seconds = 0;     // since that step, as long as it runs
  double step_seconds = 0;       // what one takes; 0: not known
  std::vector<RankFacts> ranks;  // of the attempt that runs; empty: not known
  std::optional<SlowRank> slow;
  int damaged_checkpoints = 0;
  std::string_view damage;  // of the newest of them
};

struct NodeFacts {
  enum class State { kGone, kQuarantined, kOther };  // kGone: lost or suspect
  State state = State::kOther;
  std::string_view state_word;
  std::string_view name;
  std::string_view shell_name;  // as one word of a command
  std::string_view reason;
  std::string notice;  // the first; empty: none
};

void FindJobProblems(const JobFacts& job, std::vector<Problem>* out);
void FindNodeProblems(const NodeFacts& node, std::vector<Problem>* out);
// Among equals what came first stays first. A queue is no trouble of each job in it: the first says
// what it waits for, and how many more wait.
void SortProblems(std::vector<Problem>* problems);

// "8 s", "2 min 10 s", "3 h 5 min".
std::string LastingText(double seconds);

}  // namespace muster
