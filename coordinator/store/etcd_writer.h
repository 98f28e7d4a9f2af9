// EtcdWriter: changes of a store in etcd, each atomic, in order, and by the leader alone.
//
// Owned by EtcdStore; one thread at a time. Every transaction compares the revision at which this
// leader's key was created and the number of the transaction before it, and writes its own number.
// So it is done once, however often it is sent, and a request of which no answer came is sent until
// etcd has said whether it was carried out.
//
// Etcd limits a transaction. Changes that do not fit into one are written as a stage, part by part,
// and count from the transaction that names the stage on; then they are made. A leader that finds a
// named stage makes its changes, and removes others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"
#include "coordinator/store/etcd_leadership.h"

namespace muster {

class EtcdWriter {
 public:
  // Limits of a transaction; etcd's own are 128 operations and 1.5 MiB, unless its flags say
  // others.
  static constexpr std::size_t kMaxOperations = 100;
  static constexpr std::size_t kMaxBytes = 1 << 20;

  // All outlive the writer. `on_room` is called on the thread that writes when `has_room` changes.
  EtcdWriter(EtcdClient& client, const EtcdLeadership& leadership, const EtcdKeys& keys,
             std::function<void()> on_room)
      : client_(client), leadership_(leadership), keys_(keys), on_room_(std::move(on_room)) {}

  // Before everything else: what earlier leaders staged.
  Status Recover();
  // kAborted: this coordinator does not lead any more, and the changes were not made. kUnavailable:
  // no member answers. While etcd is full it waits for room.
  Status Write(const EtcdChanges& changes);
  // Deletes [first, end).
  Status DeleteRange(const std::string& first, const std::string& end);
  // Completes a stage that is named, before what it says is read.
  Status Settle();

  // False while etcd is full, and a change waits. Any thread.
  bool has_room() const { return has_room_; }
  // A change that waits for room fails. Any thread.
  void StopWaiting();

  // Whether the changes go into one transaction.
  static bool Fits(const EtcdChanges& changes);
  // That of the newest transaction.
  std::int64_t revision() const { return revision_; }
  std::uint64_t transactions() const { return number_; }
  // Bytes of the changes so far, which etcd keeps until a compaction.
  std::uint64_t bytes() const { return bytes_; }

 private:
  using Operations = std::vector<etcdserverpb::RequestOp>;

  Status Transact(Operations operations);
  Status AwaitRoom(const Status& refused);
  void SetRoom(bool has_room);
  Status Judge(const etcdserverpb::TxnResponse& refused, std::uint64_t number) const;
  Status Stage(const Operations& operations);

  EtcdClient& client_;
  const EtcdLeadership& leadership_;
  const EtcdKeys& keys_;
  const std::function<void()> on_room_;
  std::atomic<bool> has_room_ = true;
  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stopping_ = false;
  std::uint64_t number_ = 0;  // of the newest transaction of this leader
  std::int64_t revision_ = 0;
  std::uint64_t bytes_ = 0;
  bool staged_ = false;  // a stage is named, and its changes are not all made
};

}  // namespace muster
