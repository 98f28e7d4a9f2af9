// TrainingFigures: what a rank counts for metrics and for the goodput ledger, in the second half of
// its progress page (progress_page.h). Nothing is decided by them.
//
// The half has a magic and a version of its own, written by the rank: one of an older release
// leaves it empty, or what it does not know at zero, and a worker that is newer than a running rank
// then has no such figures of it. New versions add at the end. A sequence lock makes readings
// whole, as in the first half. docs/trainer-protocol.md describes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace muster {

inline constexpr std::size_t kProgressPageBytes = 4096;
inline constexpr std::size_t kFiguresOffset = 2048;  // in the progress page, behind its first half

// What a step's time goes to. The order is part of the layout, here and below.
enum class StepPart { kData, kForward, kBackward, kOptimizer, kCommWait, kCheckpoint };
inline constexpr std::size_t kStepPartCount = 6;
std::string_view StepPartName(StepPart part);  // data, forward, ..., comm_wait, checkpoint

// What the ledger books of a rank. Other seconds of the process are booked by its supervisor.
enum class RankTime {
  kStep,       // in finished steps, waits taken off
  kRecompute,  // in steps that had been finished before
  kCheckpoint,
  kWait,  // for peers, in steps that had not been finished before
};
inline constexpr std::size_t kRankTimeCount = 4;
std::string_view RankTimeName(RankTime time);  // step, recompute, checkpoint, wait

enum class CollectiveOp {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kRingSendRecv,
  kBarrier,
  kAllToAll
};
inline constexpr std::size_t kCollectiveOpCount = 7;
std::string_view CollectiveOpName(CollectiveOp op);  // all_gather, ..., barrier, all_to_all

enum class CollectiveError { kPeerLost, kTimeout, kInternal };
inline constexpr std::size_t kCollectiveErrorCount = 3;
std::string_view CollectiveErrorName(CollectiveError error);  // peer_lost, timeout, internal

// Upper bounds in seconds; the last bucket is open.
inline constexpr std::array<double, 11> kSaveSecondsBounds = {0.01, 0.03, 0.1, 0.3, 1,   3,
                                                              10,   30,   100, 300, 1000};

struct SaveSeconds {
  std::array<std::uint64_t, kSaveSecondsBounds.size() + 1> buckets = {};  // not cumulative
  double sum = 0;

  void Observe(double seconds);
  friend bool operator==(const SaveSeconds&, const SaveSeconds&) = default;
};

// Bytes, of the device that a rank trains on; all zero where that is the host.
struct DeviceMemory {
  std::uint64_t capacity = 0;
  std::uint64_t active = 0;
  std::uint64_t allocated = 0;
  std::uint64_t reserved = 0;
  std::uint64_t peak_active = 0;  // since the process started
  std::uint64_t peak_allocated = 0;
  std::uint64_t peak_reserved = 0;
  std::uint64_t alloc_retries = 0;
  std::uint64_t ooms = 0;

  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

// How the routers of a model with experts have spread the last step's tokens, over its layers.
struct RouterFigures {
  std::int64_t experts = 0;   // of a layer; 0: the model has none, or no step is finished
  double largest_share = 0;   // of a layer's choices, of one expert
  double smallest_share = 0;  // likewise
  double entropy = 0;         // of the most uneven layer: 1 is even
  std::int64_t idle = 0;      // experts that no token was given, counted in each layer

  friend bool operator==(const RouterFigures&, const RouterFigures&) = default;
};

// All since the process started. 8 bytes each, so that the lock can copy it word by word.
struct TrainingFigures {
  std::int64_t samples_done = 0;       // by the whole job
  double flops_done = 0;               // by the whole job; rank 0 alone, 0 elsewhere
  double mfu = 0;                      // of the last step, 0 to 1; 0: not known
  std::int64_t last_step_unix_ms = 0;  // when a step was finished last; 0: none was
  std::array<double, kStepPartCount> part_seconds = {};
  std::array<double, kRankTimeCount> time_seconds = {};
  SaveSeconds stage;                   // a checkpoint's copy, for which training waits
  SaveSeconds write;                   // of a shard, until it is durable
  std::uint64_t checkpoint_bytes = 0;  // durable
  std::array<std::uint64_t, kCollectiveErrorCount> collective_errors = {};
  DeviceMemory device;
  // Since version 2: collectives that were issued, in all groups; those of later versions follow.
  std::array<std::uint64_t, 6> first_collectives = {};
  // Since version 3: groups that use sockets instead of a host's memory or RDMA.
  std::uint64_t socket_fallbacks = 0;
  // Since version 4.
  RouterFigures routers;
  std::array<std::uint64_t, kCollectiveOpCount - 6> more_collectives = {};

  std::array<std::uint64_t, kCollectiveOpCount> collectives() const;
  void SetCollectives(const std::array<std::uint64_t, kCollectiveOpCount>& issued);
  friend bool operator==(const TrainingFigures&, const TrainingFigures&) = default;
};
static_assert(sizeof(TrainingFigures) % sizeof(std::uint64_t) == 0);

struct FiguresLayout;

// The rank's side; one thread.
class FiguresWriter {
 public:
  // `fd`: of the progress page.
  static Result<std::unique_ptr<FiguresWriter>> Map(int fd);
  ~FiguresWriter();
  FiguresWriter(const FiguresWriter&) = delete;
  FiguresWriter& operator=(const FiguresWriter&) = delete;

  void Publish(const TrainingFigures& figures);

 private:
  explicit FiguresWriter(void* page) : page_(page) {}
  FiguresLayout* layout() const;
  void* page_;
};

// The worker's side; any one thread.
class FiguresReader {
 public:
  static Result<std::unique_ptr<FiguresReader>> Map(int fd);
  ~FiguresReader();
  FiguresReader(const FiguresReader&) = delete;
  FiguresReader& operator=(const FiguresReader&) = delete;

  // False where the rank keeps none, or died within a store.
  bool Read(TrainingFigures* figures) const;

 private:
  explicit FiguresReader(void* page) : page_(page) {}
  const FiguresLayout* layout() const;
  void* page_;
};

}  // namespace muster
