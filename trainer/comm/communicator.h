// Communicator: the collectives of one gang, or of a group of its ranks, which can be aborted and
// formed again within a living process.
//
// It is made of a RendezvousStore and of the Transport that the ranks get there (transport.h):
// shared memory between the ranks of one host, rings between hosts or, with the CUDA plug-in, NCCL.
// What all of them have in common is here: forming again, the groups that Split makes of a group,
// aborts from any thread that reach the groups below, counts, and checks of arguments. Buffers are
// raw memory of the transport's device or, but for ReduceScatter, any memory of the host; the
// caller owns them and keeps them alive until the operation's Work is done.
//
// On a GPU an operation begins after all work that was put on the trainer's stream before it was
// issued. Over the device's memory Wait makes that stream, not the thread, wait for it: OK says
// that it was issued, and a later operation reports how it ended. Over the host's memory Wait
// returns when it has ended, and OK says that all ranks did their part.
//
// Threads: Form and the collectives are called by one thread, the trainer's; every rank issues the
// same operations in the same order, and waits for those of several groups in the same order too.
// Abort, AbortThrough and counters may be called from any thread at any time.
// Results are deterministic: reductions add in a fixed order that depends on size and rank only.
//
// Errors: kUnavailable when a peer is lost, kCancelled after Abort, kDeadlineExceeded when a
// collective outlives its deadline. After an error the communicator refuses every operation with
// the same status until it is formed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/transport.h"

namespace muster {

// Since the communicator was formed; groups count for themselves.
struct CommunicatorCounters {
  std::uint64_t enqueued = 0;
  std::uint64_t started = 0;  // that the device has come to, or the thread that runs them
  std::uint64_t completed = 0;
  std::uint64_t bytes = 0;             // sent to peers, or read from their memory
  std::uint64_t wait_nanoseconds = 0;  // that the trainer's thread spent in Wait
};

class Communicator final {
 public:
  // A world, unformed. The place is its own and that of the groups below it.
  explicit Communicator(std::shared_ptr<RendezvousStore> place);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Meets the peers of `rendezvous.generation`. On failure the communicator stays unformed and
  // may try again.
  Status Form(Rendezvous rendezvous, Deadline deadline);
  int rank() const { return group_.rank; }
  int size() const { return group_.size; }

  // From the next Form on, counts are kept in a cell of `page` named "world", those of each group
  // that is split off in one by the group's name, as far as there are cells; null: in private.
  void CountInto(std::shared_ptr<ProgressWriter> page) { page_ = std::move(page); }

  // Ends every operation under way and to come with `reason`, Form and Split included; returns at
  // once. The trainer's thread is out of any wait within milliseconds, whatever the peers do; only
  // looking up a host's name is waited for. Form begins anew.
  void Abort(const Status& reason);
  // For a thread that calls off a generation that the trainer's thread may not have begun to form:
  // Abort if the communicator is in `generation` or an earlier one, and in any case Form of such a
  // generation fails with `reason`. On a group the same as Abort.
  void AbortThrough(Generation generation, const Status& reason);

  // Collective. A region in which AllGather and ReduceScatter move nothing that the peers can read
  // in place: with `full` in a kCommon region and the shard at its own place, AllGather only waits
  // until every rank has issued it; with `full` in a kPerRank region, ReduceScatter adds up
  // straight from the peers' bytes, and its Wait returns when no peer reads this rank's any more.
  // Who writes to a place of a kCommon region sees to it that no peer still reads it: any other
  // collective in between does. The memory is zeroed, or for a kCommon region that of an earlier
  // one of as many bytes, where `kept` of rank 0 is its file and not -1. kUnimplemented where
  // shares_memory is false: the ranks do not share a host's memory. The trainer's thread.
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes, int kept);
  bool shares_memory() const;

  // Collective over `members` only: a formed communicator of those ranks of this one, in that
  // order, this rank among them. `name` keeps groups with common members apart. Abort of this
  // communicator aborts it too, and it must be formed anew, by another Split, when this one is.
  Result<std::unique_ptr<Communicator>> Split(const std::string& name,
                                              const std::vector<int>& members, Deadline deadline);

  // full[r * count .. (r+1) * count) of every rank becomes rank r's `shard`. `shard` may lie at its
  // own place in `full`.
  std::unique_ptr<Work> AllGather(const void* shard, void* full, std::size_t count,
                                  ElementType type);
  std::unique_ptr<Work> ReduceScatter(const ReduceScatterArgs& args);
  std::unique_ptr<Work> AllReduce(void* data, std::size_t count, ElementType type, ReduceOp op);
  std::unique_ptr<Work> Broadcast(void* data, std::size_t bytes, int root);
  // A ring: this rank's bytes go to rank (rank + 1) % size, and those of the rank before it come
  // here. The buffers do not overlap and are both the host's or both the device's; `bytes` is the
  // same on all ranks.
  std::unique_ptr<Work> RingSendRecv(const void* send, void* receive, std::size_t bytes);
  // Each rank to each, a block of any size, and so none at all. Where a rank awaits another size
  // than is sent: kInternal, or with NCCL, which cannot know, the end of the time limit.
  std::unique_ptr<Work> AllToAll(const AllToAllArgs& args);
  Status Barrier();

  // The time limit of this communicator's operations and those of all groups of its gang.
  OperationLimit& limit() const { return place_->limit(); }

  CommunicatorCounters counters() const;

  // How the ranks reach each other and, where it is not the fastest way, why: for the log. The
  // trainer's thread.
  std::string Describe() const;
  // How these ranks use sockets although a faster way is at hand, a host's memory or RDMA, and why:
  // what follows "4 ranks ". Empty: they do not, or this is not the group's first rank, which alone
  // knows. NCCL chooses for all groups at once, so the world speaks for them. The trainer's thread.
  std::string fallback() const;

 private:
  // What Abort reaches from any thread, also through the group above.
  struct Reach;

  Communicator(std::shared_ptr<RendezvousStore> place, bool is_world);
  // `name` is the cell's.
  Status Join(const std::string& name, Group group, Deadline deadline);
  Status BeginForm(Generation generation);
  // Ends the generation, of the groups below too.
  void Leave();
  Status CheckFormed() const;
  std::unique_ptr<Work> Submit(const Operation& operation);

  const std::shared_ptr<RendezvousStore> place_;
  std::shared_ptr<ProgressWriter> page_;
  // Written by the trainer's thread, under reach_->mutex.
  std::shared_ptr<CollectiveCell> counters_;
  const std::shared_ptr<Reach> reach_;
  const bool is_world_;
  Group group_;
  std::vector<std::string> splits_;  // the names of all groups asked for in this generation
};

}  // namespace muster
