// doomed_rank train JOB: a rank as `muster-trainer train` starts it, which is killed at a named
// point of a step (mixture_kills_test.py). Everything but the points is the product's.
//
// A point is a line "RANK PHASE EVENT N" in the file JOB of the folder MUSTER_DOOM: the Nth EVENT
// of a step's PHASE in that rank. The file is read when a step begins, and removed before the rank
// is killed, so that it strikes once.
//   phases: forward, backward, update
//   events: operators of trainer/ops (weighted_swiglu) and of ATen (aten::topk), collectives when
//     they are issued (all_to_all) and when they are waited for (all_to_all_wait)
//   RANK checkpoint sync N: before a file of a checkpoint is on the disk, the Nth since the start
// JOB.seen-RANK gets what the first steps of a process pass, one event a line.
#include <ATen/record_function.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/operators.h"
#include "trainer/ops/testing/forwarding_ops.h"
#include "trainer/verbs/rank_device.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

constexpr int kStepsSeen = 2;

struct Point {
  int rank = -1;
  std::string phase, event;
  int count = 0;
};

std::string file;  // with the point

// The job file lies in the folder that is named for the job.
std::string FileOf(const std::filesystem::path& job_file) {
  const char* const folder = std::getenv("MUSTER_DOOM");
  return std::filesystem::path(folder == nullptr ? "" : folder) / job_file.parent_path().filename();
}

Point ReadPoint() {
  Point point;
  std::ifstream text(file);
  if (!(text >> point.rank >> point.phase >> point.event >> point.count)) point.rank = -1;
  return point;
}

void Die() {
  ::unlink(file.c_str());
  (void)std::raise(SIGKILL);
}

// Where a rank is in its step, by what it passes. The trainer's thread.
class Path {
 public:
  void Begin(int rank) {
    rank_ = rank;
    thread_ = std::this_thread::get_id();
    seen_.open(file + ".seen-" + std::to_string(rank));
    at::addGlobalCallback(at::RecordFunctionCallback(&Path::Note));
  }
  int rank() const { return rank_; }

  void PassOperator(std::string_view name) {
    const bool updates = name == "adamw" || name == "sum_of_squares";
    if (name == "cross_entropy") {
      phase_ = "backward";
    } else if (updates) {
      phase_ = "update";
    } else if (phase_ != "backward" && phase_ != "forward") {
      BeginStep();
    }
    Pass(name);
  }

  void Pass(std::string_view event) {
    if (phase_.empty() || std::this_thread::get_id() != thread_) return;
    if (steps_ <= kStepsSeen) seen_ << phase_ << ' ' << event << '\n' << std::flush;
    const bool meant = point_.rank == rank_ && point_.phase == phase_ && point_.event == event;
    if (meant && --point_.count == 0) Die();
  }

 private:
  static std::unique_ptr<at::ObserverContext> Note(const at::RecordFunction& function);

  void BeginStep() {
    phase_ = "forward";
    ++steps_;
    point_ = ReadPoint();
  }

  std::atomic<int> rank_ = -1;
  std::thread::id thread_;
  std::string phase_;  // empty: before the first step
  int steps_ = 0;
  Point point_;
  std::ofstream seen_;
};

Path path;

std::unique_ptr<at::ObserverContext> Path::Note(const at::RecordFunction& function) {
  path.Pass(function.name());
  return nullptr;
}

class DoomedOps final : public ForwardingOps {
 public:
  explicit DoomedOps(std::unique_ptr<DeviceOps> ops) : ForwardingOps(*ops), ops_(std::move(ops)) {}
  void RunKernel(const AnyOperator& op) override {
    path.PassOperator(op.name());
    ForwardingOps::RunKernel(op);
  }

 private:
  const std::unique_ptr<DeviceOps> ops_;
};

class DoomedWork final : public Work {
 public:
  DoomedWork(std::unique_ptr<Work> work, std::string event)
      : work_(std::move(work)), event_(std::move(event)) {}
  Status Wait() override {
    path.Pass(event_);
    return work_->Wait();
  }

 private:
  const std::unique_ptr<Work> work_;
  const std::string event_;
};

class DoomedTransport final : public Transport {
 public:
  explicit DoomedTransport(std::shared_ptr<Transport> to) : to_(std::move(to)) {}
  Status Begin(Deadline deadline) override { return to_->Begin(deadline); }
  void Abort(const Status& reason) override { to_->Abort(reason); }
  std::unique_ptr<Work> Submit(const Operation& operation) override {
    const std::string name(CollectiveOpName(operation.kind));
    path.Pass(name);
    return std::make_unique<DoomedWork>(to_->Submit(operation), name + "_wait");
  }
  Result<std::unique_ptr<SharedRegion>> Share(RegionKind kind, std::size_t bytes,
                                              int kept) override {
    return to_->Share(kind, bytes, kept);
  }
  bool shares_memory() const override { return to_->shares_memory(); }
  std::string Describe() const override { return to_->Describe(); }
  std::string fallback() const override { return to_->fallback(); }

 private:
  const std::shared_ptr<Transport> to_;
};

class DoomedPlace final : public RendezvousStore {
 public:
  explicit DoomedPlace(std::shared_ptr<RendezvousStore> to) : to_(std::move(to)) {}
  Status Open(Rendezvous rendezvous, Deadline deadline) override {
    return to_->Open(std::move(rendezvous), deadline);
  }
  void Close() override { to_->Close(); }
  Result<std::shared_ptr<Transport>> Meet(const Group& group,
                                          std::shared_ptr<CollectiveCell> counters,
                                          Deadline deadline) override {
    MUSTER_ASSIGN_OR_RETURN(auto transport, to_->Meet(group, std::move(counters), deadline));
    return std::shared_ptr<Transport>(std::make_shared<DoomedTransport>(std::move(transport)));
  }
  void Cancel(const Status& reason) override { to_->Cancel(reason); }
  void Rearm() override { to_->Rearm(); }
  OperationLimit& limit() override { return to_->limit(); }

 private:
  const std::shared_ptr<RendezvousStore> to_;
};

}  // namespace

// In place of trainer/verbs/rank_device.cc.
Result<RankDevice> MakeRankDevice(const RankEnv& env, JobSpec* spec) {
  (void)spec;
  path.Begin(env.rank);
  RankDevice made;
  made.ops = std::make_unique<DoomedOps>(MakeCpuOps());
  made.communicator = std::make_unique<Communicator>(std::make_shared<DoomedPlace>(
      MakeHostPlace({.operation_timeout = std::chrono::seconds(env.collective_timeout_s)})));
  return made;
}

}  // namespace muster

// In place of the C library's, for the files of checkpoints. Any thread.
extern "C" int fsync(int descriptor) {
  static std::atomic<int> synced = 0;
  std::array<char, 4096> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  if (::readlink(link.c_str(), name.data(), name.size() - 1) > 0 &&
      std::string_view(name.data()).find("/checkpoints/") != std::string_view::npos) {
    const muster::Point point = muster::ReadPoint();
    const bool meant = point.rank == muster::path.rank() && point.phase == "checkpoint";
    if (meant && ++synced == point.count) muster::Die();
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "train") {
    std::fputs("usage: doomed_rank train JOB\n", stderr);
    return 2;
  }
  muster::file = muster::FileOf(argv[2]);
  return muster::RunTrain({.file = argv[2]});
}
