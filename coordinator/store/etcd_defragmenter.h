// EtcdDefragmenter: keeps the files of etcd's members near the size of what they hold. A compaction
// leaves free pages in the file; they go back to the disk by a defragmentation, during which the
// member answers nothing.
//
// Owned by the server while its coordinator leads. A thread of its own looks at the members, and
// has one of them do it; the next one comes a period later, if all answer then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "coordinator/store/etcd_client.h"

namespace muster {

// The address of the one whose turn it is: its file is more than a quarter free. Of these, the one
// that leads comes last. Nothing: none needs it.
std::optional<std::string> MemberToDefragment(const std::vector<EtcdClient::MemberStatus>& members,
                                              std::int64_t least_bytes);

struct EtcdDefragmenterOptions {
  EtcdAccess access;
  Duration interval = std::chrono::minutes(5);
  std::int64_t least_bytes = 64 << 20;  // of a file that is worth it
  // On a thread of the defragmenter: what an operator should know.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

class EtcdDefragmenter {
 public:
  // Fails as EtcdClient::Open.
  static Result<std::unique_ptr<EtcdDefragmenter>> Start(EtcdDefragmenterOptions options);
  ~EtcdDefragmenter();
  EtcdDefragmenter(const EtcdDefragmenter&) = delete;
  EtcdDefragmenter& operator=(const EtcdDefragmenter&) = delete;

 private:
  EtcdDefragmenter(EtcdDefragmenterOptions options, std::unique_ptr<EtcdClient> client);
  void Run();
  Status DefragmentOne();

  const EtcdDefragmenterOptions options_;
  const std::unique_ptr<EtcdClient> client_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster
