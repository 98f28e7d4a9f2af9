// WorkerLanes: threads for work that may block for ever, such as files on a network file system
// whose server is away. What hangs for one key (a job) holds up no other key.
//
// Work of one key runs in order, one piece at a time. Each key with work has a thread to itself;
// threads are made as they are needed and used again. Submit from any thread. Bounded: TrySubmit
// returns false where `max_queue` pieces of the key wait or run already, and where `max_lanes`
// other keys have work; refused() counts both.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster {

class WorkerLanes {
 public:
  WorkerLanes(std::string name, std::size_t max_lanes, std::size_t max_queue);
  // Runs what is queued, then joins.
  ~WorkerLanes();
  WorkerLanes(const WorkerLanes&) = delete;
  WorkerLanes& operator=(const WorkerLanes&) = delete;

  [[nodiscard]] bool TrySubmit(const std::string& key, std::function<void()> work);
  std::uint64_t refused() const;

 private:
  // With the mutex held.
  bool Enqueue(const std::string& key, std::function<void()> work);
  bool HasThreadForOneMore();
  void Run(std::size_t index);

  const std::string name_;
  const std::size_t max_lanes_;
  const std::size_t max_queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::deque<std::function<void()>>>
      lanes_;                      // the first piece may be running
  std::deque<std::string> ready_;  // lanes that no thread has yet
  std::size_t idle_ = 0;           // threads without a lane
  bool stopping_ = false;
  std::uint64_t refused_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace muster
