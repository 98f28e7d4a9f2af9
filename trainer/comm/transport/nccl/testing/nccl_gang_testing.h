// A gang of ranks as threads of one process, over the substitutes of nccl_testing.h. For tests
// only.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/transport/nccl/nccl_rendezvous.h"
#include "trainer/comm/transport/nccl/testing/nccl_testing.h"

namespace muster::testing {

class NcclTestGang {
 public:
  struct Settings {
    Duration operation_timeout = std::chrono::seconds(30);
    Duration end_timeout = std::chrono::seconds(5);
    std::size_t scratch_bytes = 1 << 20;
    std::vector<int> versions = {};  // of NCCL, by rank; 22809 where there is none
    bool spans_nodes = false;
    std::string root = "/";
  };

  explicit NcclTestGang(int size) : NcclTestGang(size, Settings{}) {}
  NcclTestGang(int size, const Settings& settings) : spans_nodes_(settings.spans_nodes) {
    for (int r = 0; r < size; ++r) {
      auto rank = std::make_unique<Rank>();
      auto tables = std::make_shared<NcclTables>();
      const auto at = static_cast<std::size_t>(r);
      const int version = at < settings.versions.size() ? settings.versions[at] : 22809;
      tables->nccl = nccl_.Api(r, version);
      tables->cuda = rank->cuda.Api();
      tables->limit = std::make_shared<OperationLimit>(settings.operation_timeout);
      tables->end_timeout = settings.end_timeout;
      tables->scratch_bytes = settings.scratch_bytes;
      tables->root = settings.root;
      tables->idle_pause = std::chrono::milliseconds(2);
      tables->leave_timeout = std::chrono::milliseconds(100);
      rank->communicator = std::make_unique<Communicator>(MakeNcclRendezvous(std::move(tables)));
      ranks_.push_back(std::move(rank));
    }
  }
  ~NcclTestGang() {
    End();
    EXPECT_EQ(nccl_.violations(), std::vector<std::string>());
  }

  // All ranks at the same time; their answers by rank.
  std::vector<Status> Form(Generation generation, Duration within = std::chrono::seconds(10)) {
    Listener listener = Listen();
    std::vector<Rendezvous> places;
    for (int r = 0; r < size(); ++r) {
      places.push_back(MeetAt(listener, r, size(), generation));
      places.back().spans_nodes = spans_nodes_;
    }
    std::vector<Status> answers(ranks_.size());
    Run([&](int r, Communicator& communicator) {
      const auto at = static_cast<std::size_t>(r);
      answers[at] = communicator.Form(std::move(places[at]), Deadline::After(within));
    });
    return answers;
  }
  void MustForm(Generation generation) {
    for (const Status& status : Form(generation)) ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // One thread per rank, until all have returned.
  template <typename Body>
  void Run(const Body& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([this, r, &body] { body(r, communicator(r)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Takes all communicators apart, at the same time as processes that end.
  void End() {
    if (ranks_.front()->communicator == nullptr) return;
    Run([this](int r, Communicator&) {
      ranks_[static_cast<std::size_t>(r)]->communicator.reset();
    });
  }

  // Memory that lives as long as the gang: what was ended may write to its buffers until then.
  std::vector<float>& Buffer(int rank, std::size_t count) {
    return At(rank).buffers.emplace_back(count, 1.0F);
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Communicator& communicator(int rank) { return *At(rank).communicator; }
  SubstituteCuda& cuda(int rank) { return At(rank).cuda; }
  SubstituteNccl& nccl() { return nccl_; }

 private:
  struct Rank {
    std::deque<std::vector<float>> buffers;
    SubstituteCuda cuda;
    std::unique_ptr<Communicator> communicator;
  };
  Rank& At(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  const bool spans_nodes_;
  SubstituteNccl nccl_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// A communicator whose Wait also empties the trainer's stream, as a copy to the host would: then
// the checks of collectives_testing.h may look at the buffers.
class Synchronous {
 public:
  Synchronous(Communicator& inner, SubstituteCuda& cuda) : inner_(inner), cuda_(cuda) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::unique_ptr<Work> AllGather(const void* shard, void* full, std::size_t count,
                                  ElementType type) {
    return After(inner_.AllGather(shard, full, count, type));
  }
  std::unique_ptr<Work> ReduceScatter(const ReduceScatterArgs& args) {
    return After(inner_.ReduceScatter(args));
  }
  std::unique_ptr<Work> AllReduce(void* data, std::size_t count, ElementType type, ReduceOp op) {
    return After(inner_.AllReduce(data, count, type, op));
  }
  std::unique_ptr<Work> Broadcast(void* data, std::size_t bytes, int root) {
    return After(inner_.Broadcast(data, bytes, root));
  }
  std::unique_ptr<Work> RingSendRecv(const void* send, void* receive, std::size_t bytes) {
    return After(inner_.RingSendRecv(send, receive, bytes));
  }
  std::unique_ptr<Work> AllToAll(const AllToAllArgs& args) { return After(inner_.AllToAll(args)); }
  Status Barrier() { return inner_.Barrier(); }

 private:
  class Synchronized final : public Work {
   public:
    Synchronized(std::unique_ptr<Work> work, SubstituteCuda& cuda)
        : work_(std::move(work)), cuda_(cuda) {}
    Status Wait() override {
      const Status status = work_->Wait();
      if (status.ok()) cuda_.Synchronize();
      return status;
    }

   private:
    std::unique_ptr<Work> work_;
    SubstituteCuda& cuda_;
  };
  std::unique_ptr<Work> After(std::unique_ptr<Work> work) {
    return std::make_unique<Synchronized>(std::move(work), cuda_);
  }

  Communicator& inner_;
  SubstituteCuda& cuda_;
};

}  // namespace muster::testing
