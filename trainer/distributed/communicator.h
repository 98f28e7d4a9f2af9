// Communicator: the collectives of one gang, which can be aborted and formed again within a living
// process.
//
// Three faces: GlooCommunicator (CPU, sockets), InProcessCommunicator (tests: ranks are threads)
// and, with the CUDA plug-in, NCCL. Buffers are raw memory of the communicator's device; the caller
// owns them and keeps them alive until the operation's Work is done.
//
// Threads: Form and the collectives are called by one thread, the trainer's; every rank issues the
// same operations in the same order. Abort and counters may be called from any thread at any time.
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

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

enum class ElementType { kUint8, kInt64, kBFloat16, kFloat32, kFloat64 };
enum class ReduceOp { kSum, kMin, kMax };
std::size_t ElementSize(ElementType type);

// All that a rank needs to find its peers in one generation.
struct Rendezvous {
  Generation generation = 0;
  int rank = 0;
  int world_size = 1;
  std::string master_address;
  int master_port = 0;
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

struct CommunicatorCounters {
  std::uint64_t enqueued = 0;
  std::uint64_t completed = 0;
  std::uint64_t bytes_sent = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Meets the peers of `rendezvous.generation`. On failure the communicator stays unformed and
  // may try again.
  virtual Status Form(Rendezvous rendezvous, Deadline deadline) = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Ends every operation under way and to come with `reason`; returns at once.
  virtual void Abort(const Status& reason) = 0;

  // full[r * count .. (r+1) * count) of every rank becomes rank r's `shard`. `shard` may lie at its
  // own place in `full`.
  virtual std::unique_ptr<Work> AllGather(const void* shard, void* full, std::size_t count,
                                          ElementType type) = 0;
  // shard[i] = op over ranks of full[rank * count + i]. `full` is scratch afterwards. `shard` may
  // lie at its own place in `full`.
  virtual std::unique_ptr<Work> ReduceScatter(void* full, void* shard, std::size_t count,
                                              ElementType type, ReduceOp op) = 0;
  virtual std::unique_ptr<Work> AllReduce(void* data, std::size_t count, ElementType type,
                                          ReduceOp op) = 0;
  virtual std::unique_ptr<Work> Broadcast(void* data, std::size_t bytes, int root) = 0;
  virtual Status Barrier() = 0;

  virtual CommunicatorCounters counters() const = 0;
};

}  // namespace muster
