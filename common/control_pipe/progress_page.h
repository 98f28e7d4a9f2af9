// ProgressPage: one page of shared memory in which a rank says how far it is.
//
// The guardian makes the page (memfd, which cannot shrink: IsSealed) and owns it; the rank inherits
// the descriptor and is the only writer; worker and guardian map it read-only. The rank only
// stores: no system call, no wait, and the page outlives a dead or stopped rank. A sequence lock
// makes a snapshot of the values consistent; the cells of the communicators beside them are counted
// up one by one, by the thread that runs the collectives, so that a rank which hangs in one shows
// it. The layout is versioned by kProgressPages; docs/trainer-protocol.md describes it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/training_figures.h"

namespace muster {

// What a rank is doing. The order is part of the layout.
enum class TrainPhase : std::uint32_t {
  kStarting,  // process up, nothing formed
  kForming,   // rendezvous and first collective
  kLoading,   // the state: a snapshot, a checkpoint, or the model's weights
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kCheckpoint,
  kExporting,
  kDone,
  kStandby,  // loaded, without an assignment
  kParked,   // out of a generation, without the next assignment
  kEvaluating,
  kReadingRows,    // and tokenizing them; between kForming and kLoading
  kLoadingFrozen,  // weights beside adapters; behind kReadingRows
};
inline constexpr int kTrainPhaseCount = 15;
constexpr bool IsWithinStep(TrainPhase phase) {
  return phase >= TrainPhase::kData && phase <= TrainPhase::kOptimizer;
}
std::string_view TrainPhaseName(TrainPhase phase);
std::string_view TrainPhaseName(std::optional<TrainPhase> phase);  // empty: not known

// Upper bounds in seconds of the step-time histogram's buckets; the last bucket is open.
inline constexpr std::array<double, 19> kStepSecondsBounds = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600};

// The values; the writer keeps its own copy and publishes it whole.
struct ProgressValues {
  std::int64_t generation = 0;
  std::int64_t step = 0;  // finished steps, those of earlier generations included
  std::int64_t max_steps = 0;
  std::int64_t micro_batch = 0;  // within the step under way
  TrainPhase phase = TrainPhase::kStarting;
  std::uint32_t reserved = 0;
  double loss = 0;       // of the last finished step; mean over the whole job
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;  // whole job
  std::int64_t tokens = 0;       // whole job, since step 0
  std::int64_t samples = 0;
  std::int64_t steps_done = 0;   // by this process
  std::int64_t tokens_done = 0;  // by the whole job during this process
  std::int64_t nonfinite = 0;
  std::uint64_t rss_bytes = 0;
  std::int64_t clock_ns = 0;        // steady clock of the last store
  std::int64_t snapshot_step = -1;  // newest sealed
  double busy_seconds =
      0;  // of finished steps since the process started, waits for peers taken off
  double wait_seconds = 0;                                  // for peers, in finished steps
  std::array<double, kTrainPhaseCount> phase_seconds = {};  // since the process started
  double step_seconds_sum = 0;
  std::array<std::uint64_t, kStepSecondsBounds.size() + 1> step_seconds_buckets = {};
};

// Counts of one communicator, in operations since it was formed.
struct CollectiveCounts {
  std::string group;  // "world", ...
  std::uint64_t enqueued = 0;
  std::uint64_t started = 0;  // that the device has come to, or the thread that runs them
  std::uint64_t completed = 0;
  std::uint64_t bytes = 0;  // sent to peers, or read from their memory
  std::uint64_t wait_nanoseconds = 0;

  friend bool operator==(const CollectiveCounts&, const CollectiveCounts&) = default;
};

// The same in shared memory, or in memory of the rank's own. Any thread of the rank adds; relaxed.
struct CollectiveCell {
  std::array<std::atomic<char>, 24> group = {};  // ends with a zero; empty: not used
  std::atomic<std::uint64_t> enqueued = 0;
  std::atomic<std::uint64_t> started = 0;
  std::atomic<std::uint64_t> completed = 0;
  std::atomic<std::uint64_t> bytes = 0;
  std::atomic<std::uint64_t> wait_nanoseconds = 0;
};
static_assert(sizeof(CollectiveCell) == 64);
inline constexpr std::size_t kMaxCollectiveCells = 8;

struct alignas(64) ProgressPageLayout {
  // ProgressValues word by word: readers look while it is written, and take it for whole only where
  // `sequence` says so.
  using Words = std::array<std::uint64_t, sizeof(ProgressValues) / sizeof(std::uint64_t)>;

  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint64_t> sequence;  // odd while a store is under way
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> values;
  alignas(64) std::array<CollectiveCell, kMaxCollectiveCells> cells;
};
static_assert(sizeof(ProgressPageLayout) <= kFiguresOffset);
static_assert(sizeof(ProgressPageLayout::Words) == sizeof(ProgressValues));
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

// A new page; the descriptor is close-on-exec and may be passed on.
Result<UniqueFd> CreateProgressPage();
// Whether no process can make it smaller, so that one which has mapped it may read it.
bool IsSealed(int fd);

// The rank's side. One thread stores values, takes cells and retires them.
class ProgressWriter {
 public:
  static Result<std::unique_ptr<ProgressWriter>> Map(int fd);
  // A page that no other process sees, for a trainer that runs without a guardian.
  static Result<std::unique_ptr<ProgressWriter>> Private();
  ~ProgressWriter();
  ProgressWriter(const ProgressWriter&) = delete;
  ProgressWriter& operator=(const ProgressWriter&) = delete;

  ProgressValues& values() { return values_; }
  void Publish();
  // The sum over all groups in use.
  std::uint64_t wait_nanoseconds() const;
  // A collective of any group was issued. The thread that stores values; not a part of them.
  void CountOperation(CollectiveOp op) { ++operations_[static_cast<std::size_t>(op)]; }
  const std::array<std::uint64_t, kCollectiveOpCount>& operations() const { return operations_; }

 private:
  friend std::shared_ptr<CollectiveCell> ClaimCell(const std::shared_ptr<ProgressWriter>& page,
                                                   std::string_view group);
  explicit ProgressWriter(ProgressPageLayout* page) : page_(page) {}
  CollectiveCell* TakeCell(std::string_view group);
  void ReturnCell(CollectiveCell* cell);
  // The name that `group` gets: itself, cut to fit, with a number behind it where it is in use.
  std::string FreeName(std::string_view group) const;

  ProgressPageLayout* page_;
  ProgressValues values_;
  std::array<std::uint64_t, kCollectiveOpCount> operations_ = {};
  std::mutex taken_mutex_;
  std::array<bool, kMaxCollectiveCells> taken_ = {};
};

// A cell for a group that begins, its counts at zero: in the page or, without one and when all are
// taken, in memory that no other process sees. The last pointer gives it back, in any thread.
std::shared_ptr<CollectiveCell> ClaimCell(const std::shared_ptr<ProgressWriter>& page,
                                          std::string_view group);
// Readers see it no longer and its name is free, even if a holder still counts in it.
void RetireCell(CollectiveCell& cell);

// The worker's side. Any one thread.
class ProgressReader {
 public:
  static Result<std::unique_ptr<ProgressReader>> Map(int fd);
  ~ProgressReader();
  ProgressReader(const ProgressReader&) = delete;
  ProgressReader& operator=(const ProgressReader&) = delete;

  // False when the writer was in the middle of a store at every try (it may have died there).
  bool Read(ProgressValues* values) const;
  // How often the rank has stored: rises while it moves, whatever it does.
  std::uint64_t stores() const;
  // One entry per group in use.
  std::vector<CollectiveCounts> ReadCollectives() const;

 private:
  explicit ProgressReader(const ProgressPageLayout* page) : page_(page) {}
  const ProgressPageLayout* page_;
};

}  // namespace muster
