// Communicator: the collectives of one gang, which can be aborted and formed again within a living
// process.
//
// Faces: TCP rings between hosts, shared memory between the ranks of one host, ranks as threads of
// one process (tests) and, with the CUDA plug-in, NCCL. Buffers are raw memory of the
// communicator's device or, but for ReduceScatter, any memory of the host; the caller owns them and
// keeps them alive until the operation's Work is done.
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
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/progress_page.h"
#include "trainer/comm/operation_limit.h"
#include "trainer/core/element_type.h"

namespace muster {

enum class ReduceOp { kSum, kMin, kMax };

// All that a rank needs to find its peers in one generation.
struct Rendezvous {
  Generation generation = 0;
  int rank = 0;
  int world_size = 1;
  std::string master_address;
  int master_port = 0;
  // What ranks show each other before they are heard; secret. Empty: no proof, as under
  // torchrun.
  std::string token;
  // The store's listening socket, where this process serves it (rank 0); invalid: connect only.
  UniqueFd listen_fd;
  // Serve the store although no socket was handed down (rank 0 under srun or mpirun).
  bool serve_store = false;
  // Address that peers reach this process at; empty: the one that leads to master_address.
  std::string bind_address;
};

// One operation under way. Wait may be called once, by the thread that issued it.
class Work {
 public:
  virtual ~Work() = default;
  virtual Status Wait() = 0;
};

// Since the communicator was formed; groups count for themselves.
struct CommunicatorCounters {
  std::uint64_t enqueued = 0;
  std::uint64_t started = 0;  // that the device has come to, or the thread that runs them
  std::uint64_t completed = 0;
  std::uint64_t bytes = 0;             // sent to peers, or read from their memory
  std::uint64_t wait_nanoseconds = 0;  // that the trainer's thread spent in Wait
};

// shard[i] = op over the ranks of full[rank * count + i].
struct ReduceScatterArgs {
  void* full = nullptr;   // world size times count elements; scratch afterwards
  void* shard = nullptr;  // may lie at its own place in `full` if the types agree
  std::size_t count = 0;  // elements of a shard
  ElementType full_type = ElementType::kFloat32;
  // What partial sums are rounded to, and what travels between hosts. At least as wide as full_type
  // for sums that lose nothing on the way.
  ElementType sum_type = ElementType::kFloat32;
  ElementType shard_type = ElementType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool accumulate = false;  // add the result to what `shard` holds
};

// How ranks of one host see a region of shared memory.
enum class RegionKind {
  kCommon,   // one array of `bytes` bytes that every rank maps: each writes its part, all read
  kPerRank,  // `bytes` bytes for each rank; the peers only read them
};

// Memory that all ranks of a communicator map, aligned to pages. The owner keeps it no longer than
// the communicator stays formed: peers of a later generation have other regions. What is not
// written to any more can live on by its file.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  // kCommon: the start of the array; kPerRank: of this rank's bytes.
  virtual void* data() const = 0;
  // The region's own descriptor of the memory; -1: there is none.
  virtual int file() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Meets the peers of `rendezvous.generation`. On failure the communicator stays unformed and
  // may try again.
  virtual Status Form(Rendezvous rendezvous, Deadline deadline) = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // From the next Form on, counts are kept in a cell of `page` named "world", those of each group
  // that is split off in one by the group's name, as far as there are cells; null: in private.
  virtual void CountInto(std::shared_ptr<ProgressWriter> page) = 0;

  // Ends every operation under way and to come with `reason`, Form and Split included; returns at
  // once. The trainer's thread is out of any wait within milliseconds, whatever the peers do; only
  // looking up a host's name is waited for. Form begins anew.
  virtual void Abort(const Status& reason) = 0;
  // For a thread that calls off a generation that the trainer's thread may not have begun to form:
  // Abort if the communicator is in `generation` or an earlier one, and in any case Form of such a
  // generation fails with `reason`. On a group the same as Abort.
  virtual void AbortThrough(Generation generation, const Status& reason) = 0;

  // Collective. A region in which AllGather and ReduceScatter move nothing that the peers can read
  // in place: with `full` in a kCommon region and the shard at its own place, AllGather only waits
  // until every rank has issued it; with `full` in a kPerRank region, ReduceScatter adds up
  // straight from the peers' bytes, and its Wait returns when no peer reads this rank's any more.
  // Who writes to a place of a kCommon region sees to it that no peer still reads it: any other
  // collective in between does. The memory is zeroed, or for a kCommon region that of an earlier
  // one of as many bytes, where `kept` of rank 0 is its file and not -1. kUnimplemented where the
  // ranks do not share a host's memory.
  virtual Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes,
                                                      int kept) = 0;

  // Collective over `members` only: a formed communicator of those ranks of this one, in that
  // order, this rank among them. `name` keeps groups with common members apart. Abort of this
  // communicator aborts it too, and it must be formed anew, by another Split, when this one is.
  virtual Result<std::unique_ptr<Communicator>> Split(const std::string& name,
                                                      const std::vector<int>& members,
                                                      Deadline deadline) = 0;

  // full[r * count .. (r+1) * count) of every rank becomes rank r's `shard`. `shard` may lie at its
  // own place in `full`.
  virtual std::unique_ptr<Work> AllGather(const void* shard, void* full, std::size_t count,
                                          ElementType type) = 0;
  virtual std::unique_ptr<Work> ReduceScatter(const ReduceScatterArgs& args) = 0;
  virtual std::unique_ptr<Work> AllReduce(void* data, std::size_t count, ElementType type,
                                          ReduceOp op) = 0;
  virtual std::unique_ptr<Work> Broadcast(void* data, std::size_t bytes, int root) = 0;
  // A ring: this rank's bytes go to rank (rank + 1) % size, and those of the rank before it come
  // here. The buffers do not overlap and are both the host's or both the device's; `bytes` is the
  // same on all ranks.
  virtual std::unique_ptr<Work> RingSendRecv(const void* send, void* receive,
                                             std::size_t bytes) = 0;
  virtual Status Barrier() = 0;

  // The time limit of this communicator's operations and those of all groups of its gang.
  virtual OperationLimit& limit() const = 0;

  virtual CommunicatorCounters counters() const = 0;

  // How the ranks reach each other and, where it is not the fastest way, why: for the log. The
  // trainer's thread.
  virtual std::string Describe() const = 0;
  // Why ranks that are all on one host use sockets instead of its memory. Empty: they do not, or
  // this is not the group's first rank, which alone knows. The trainer's thread.
  virtual std::string fallback() const = 0;
};

}  // namespace muster
