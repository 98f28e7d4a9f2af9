// Processes of ranks as threads, each with a guardian that a test speaks for: it assigns, parks,
// stops, and waits for what the rank says. The ranks meet over loopback, as real ones do. Header of
// tests only.
#pragma once

#include <ATen/Parallel.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/train/rank_process.h"
#include "trainer/train/testing/trainer_testing.h"

namespace muster {

// The segments that the guardian of a node holds, by name. Any thread.
class TestNode {
 public:
  void Hold(const std::string& name, const void* maker, UniqueFd fd) {
    std::lock_guard lock(mutex_);
    held_[name] = {maker, std::move(fd)};
  }
  void Drop(const std::string& name) {
    std::lock_guard lock(mutex_);
    held_.erase(name);
  }
  void DropAll() {
    std::lock_guard lock(mutex_);
    held_.clear();
  }
  std::vector<std::string> names() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, held] : held_) names.push_back(name);
    return names;
  }
  // To a process that has not made them itself.
  void SendAll(const void* to, PacketSocket& socket) {
    std::lock_guard lock(mutex_);
    for (const auto& [name, held] : held_) {
      if (held.maker == to) continue;
      const Json message = {{"type", "segment"}, {"name", name}};
      ASSERT_TRUE(
          socket.Send(message.dump(), {held.fd.get()}, Deadline::After(std::chrono::seconds(5)))
              .ok());
    }
  }

 private:
  struct Held {
    const void* maker = nullptr;
    UniqueFd fd;
  };
  std::mutex mutex_;
  std::map<std::string, Held> held_;
};

// One rank's process and its guardian's side of it.
class TestProcess {
 public:
  // `node` outlives the process.
  TestProcess(const JobSpec& spec, TestNode& node) : spec_(spec), node_(node) {
    auto [rank_end, guardian_end] = *PacketSocket::Pair();
    socket_ = std::move(guardian_end);
    reader_ = std::thread([this] { Read(); });
    process_ = std::thread([this, end = std::move(rank_end)]() mutable { Serve(end.Release()); });
  }
  // A test that goes, or fails, lets its ranks go: called off, and then stopped where they wait.
  ~TestProcess() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      lock.unlock();
      (void)socket_.Send(R"({"type":"park","generation":1000000})");
      (void)socket_.Send(R"({"type":"stop"})");
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return ended_; });
    }
    lock.unlock();
    process_.join();
    reader_.join();
  }

  void Assign(Generation generation, int rank, int world_size, testing::Listener& master,
              const std::string& resume_file, int ranks_per_node = 0, int lock = -1) {
    Json descriptors = Json::array();
    std::vector<int> fds;
    const auto add = [&](const char* name, int fd) {
      descriptors.push_back(name);
      fds.push_back(fd);
    };
    if (rank == 0) add("listen", master.fd.get());
    if (lock >= 0) add("lock", lock);
    const int local_size = ranks_per_node > 0 ? ranks_per_node : world_size;
    const Json message = {
        {"type", "assign"},
        {"generation", generation},
        {"environment",
         {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world_size),
          "LOCAL_RANK=" + std::to_string(rank % local_size),
          "LOCAL_WORLD_SIZE=" + std::to_string(local_size), "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + std::to_string(master.port), "MUSTER_JOB_ID=j",
          "MUSTER_RESUME_FILE=" + resume_file}},
        {"descriptors", descriptors}};
    node_.SendAll(this, socket_);
    ASSERT_TRUE(socket_.Send(message.dump(), fds, Soon()).ok());
  }
  void Send(const Json& message) { ASSERT_TRUE(socket_.Send(message.dump()).ok()); }
  void Park(Generation generation) {
    Send({{"type", "park"}, {"generation", generation}, {"reason", "a peer is gone"}});
  }
  void Stop() { Send({{"type", "stop"}, {"reason", "drain"}}); }

  // The first message of this type and generation, waited for; null when it does not come.
  Json Await(const std::string& type, Generation generation) {
    std::unique_lock lock(mutex_);
    Json found;
    const auto came = [&] {
      for (const Json& each : heard_) {
        if (each["type"] != type || each["generation"] != generation) continue;
        found = each;
        return true;
      }
      return false;
    };
    EXPECT_TRUE(changed_.wait_until(lock, Soon().when(), came))
        << "no " << type << " of generation " << generation << " in " << Json(heard_).dump();
    return found;
  }
  std::vector<Json> Heard(const std::string& type) {
    std::lock_guard lock(mutex_);
    std::vector<Json> found;
    for (const Json& each : heard_) {
      if (each["type"] == type) found.push_back(each);
    }
    return found;
  }
  // Waits until the process has ended: why it failed, if it did.
  TrainStatus AwaitEnd() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_until(lock, Soon().when(), [&] { return ended_; }));
    return status_;
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  static Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

  void Read() {
    for (;;) {
      auto packet = socket_.Receive(Deadline::After(std::chrono::minutes(5)));
      if (!packet.ok()) return;
      const Json message = Json::parse(packet->data);
      if (message["type"] == "segment") {
        node_.Hold(message["name"], this, std::move(packet->fds.at(0)));
      } else if (message["type"] == "drop_segment") {
        node_.Drop(message["name"]);
      }
      std::lock_guard lock(mutex_);
      heard_.push_back(message);
      changed_.notify_all();
    }
  }

  void Serve(UniqueFd control) {
    at::set_num_threads(1);  // ranks share the cores
    RankFaults faults;
    Supervisor supervisor(std::move(control),
                          {.on_lost = [] {},
                           .on_fault =
                               [&](std::string_view kind, std::string_view argument) {
                                 EXPECT_TRUE(faults.Arm(kind, argument).ok());
                               }});
    ProgressReporter progress(*ProgressWriter::Private(), SystemClock());
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen("/dev/null", "w"),
                                                              std::fclose);
    RankProcess process(spec_, {.make_device = [](const RankEnv&, JobSpec*) -> Result<RankDevice> {
                                  RankDevice device;
                                  device.ops = MakeCpuOps();
                                  device.communicator = MakeHostCommunicator();
                                  return device;
                                },
                                .supervisor = supervisor,
                                .progress = progress,
                                .faults = faults,
                                .clock = SystemClock(),
                                .out = out.get()});
    TrainStatus status = process.RunAssignments();
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    ended_ = true;
    changed_.notify_all();
  }

  const JobSpec spec_;
  TestNode& node_;
  PacketSocket socket_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Json> heard_;
  TrainStatus status_;
  bool ended_ = false;
  std::thread reader_;
  std::thread process_;
};

}  // namespace muster
