// A CUDA runtime and an NCCL over host memory, with faults to order. For tests only.
//
// SubstituteCuda runs every stream on a thread of its own, so work on a stream is as asynchronous
// as on a GPU. SubstituteNccl connects ranks that are threads of one process and moves their data
// on those streams. It is as strict as NCCL is brittle: a call on a communicator that is gone, or
// two calls on one at the same time, are written down as violations.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trainer/comm/transport/nccl/nccl_api.h"
#include "trainer/core/cuda_api.h"

namespace muster::testing {

// One rank's GPU.
class SubstituteCuda {
 public:
  SubstituteCuda();
  ~SubstituteCuda();

  std::shared_ptr<const CudaApi> Api();
  // Puts work on the trainer's stream.
  void Enqueue(std::function<void()> work);
  // Until the trainer's stream is empty.
  void Synchronize();
  // From here on every query of an event fails, as after a kernel that touched wild memory.
  void Break() { broken_ = true; }

  // From here on this address is ordinary memory of the host; all other memory is the device's.
  void MakeHostMemory(const void* memory);

  // What was made and not given back.
  int streams() const { return streams_; }
  int events() const { return events_; }
  int allocations() const { return allocations_; }
  int allocations_made() const { return allocations_made_; }  // given back or not
  std::size_t largest_allocation() const { return largest_allocation_; }

 private:
  void AddStreams(CudaApi* api);
  void AddEvents(CudaApi* api);
  void AddMemory(CudaApi* api);

  std::atomic<int> streams_ = 0;
  std::atomic<int> events_ = 0;
  std::atomic<int> allocations_ = 0;
  std::atomic<int> allocations_made_ = 0;
  std::atomic<std::size_t> largest_allocation_ = 0;
  std::atomic<bool> broken_ = false;
  CudaStream trainer_ = nullptr;
  std::set<const void*> host_memory_;  // the rank's thread alone
};

class SubstituteNccl {
 public:
  SubstituteNccl();
  ~SubstituteNccl();

  // The table of one rank; `version` is what it says to be.
  NcclApi Api(int rank, int version = 22809);

  // --- faults; each may be ordered at any time ---
  void ConnectNever(bool never);              // communicators stay in progress
  void FailRank(int rank, NcclResult error);  // all its communicators, asynchronously
  void HangRank(int rank);                    // its part of the next operations never comes
  void DelayCalls(int rank, int polls);       // its calls stay in progress for so many polls
  void StickCalls(int rank);                  // its calls stay in progress for ever
  void BlockAborts(bool block);               // ncclCommAbort does not return
  void NotifyPeersOfAborts();                 // whose rank aborts, fails its peers' communicators

  // --- what was seen ---
  int aborts() const;
  int destroys() const;
  int open_communicators() const;
  // Communicators aborted outside of a group, calls after the end, calls at the same time.
  std::vector<std::string> violations() const;

 private:
  struct State;
  void AddCollectives(NcclApi* api) const;
  void AddSendReceive(NcclApi* api) const;

  const std::shared_ptr<State> state_;
};

}  // namespace muster::testing
