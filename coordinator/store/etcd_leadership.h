// EtcdLeadership: the leader key of a store in etcd, which one coordinator has at a time.
//
// Owned by EtcdStore. The key is created by a transaction that finds none, under a lease, and ends
// with it. A thread of its own keeps the lease alive over channels of its own, three times in its
// life, so never behind a commit; it announces this coordinator's addresses after a keep-alive that
// was answered. The same transaction raises the epoch: a number of ours, since a
// revision of etcd goes back when a snapshot of it is restored.
//
// A lease that no member confirms in time is not lost yet: after an election of its own, etcd
// extends all leases. Meanwhile nothing may be answered (IsConfirmed), and once a keep-alive is
// answered it is known whether this process leads on.
//
// One that waits ends the lease of a leader whose process has ended (LeaderProbe). That is safe
// whatever the probe saw: each transaction compares the leader key's revision.
//
// Campaign blocks until the key is this process's; once it has waited for a leader, it outlasts an
// etcd that does not answer. Any thread may call the rest.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/result.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"
#include "coordinator/store/journal_format.h"

namespace muster {

struct EtcdLeadershipOptions {
  EtcdAccess access;
  EtcdKeys keys;
  EpochClaim claim;  // but for its epoch
  std::int64_t lease_seconds = 2;
  Duration ends_unconfirmed = std::chrono::seconds(30);  // EtcdStoreOptions'
  Duration answers_within = kEtcdAnswer;                 // likewise
  // Called before each wait with who leads, and with nullptr when none does. What is not OK ends
  // the campaign.
  std::function<Status(const EpochClaim* leader)> on_wait = [](const EpochClaim*) {
    return OkStatus();
  };
  std::function<void(const std::string&)> note = [](const std::string&) {};  // any thread
};

class EtcdLeadership {
 public:
  // kUnavailable: etcd cannot be reached at first; kFailedPrecondition: another version wrote the
  // store.
  static Result<std::unique_ptr<EtcdLeadership>> Campaign(EtcdClient& client,
                                                          EtcdLeadershipOptions options);
  // Gives the key up, so that another coordinator need not wait for the end of the lease.
  ~EtcdLeadership();
  EtcdLeadership(const EtcdLeadership&) = delete;
  EtcdLeadership& operator=(const EtcdLeadership&) = delete;

  // Inside the lease, counted from the sending of the last request that was answered, by a clock
  // that runs on while the machine is suspended: no other coordinator can lead.
  bool IsConfirmed() const;
  // kAborted: the key is lost, or this epoch is too low. kUnavailable: no member has answered since
  // `ends_unconfirmed` before.
  Status Check() const;

  // The key says soon after that this coordinator answers at these addresses.
  void Announce(std::string address, std::string page);
  // From now on, after each keep-alive that was answered, on a thread of the leadership; `function`
  // only posts.
  void OnAnswer(std::function<void()> function);
  // The next campaign has a higher epoch than this one. From then on Check is not OK.
  void RaiseEpoch(std::uint64_t epoch);

  std::uint64_t epoch() const { return epoch_; }
  // Creation of the leader key.
  std::int64_t revision() const { return revision_; }

 private:
  EtcdLeadership(EtcdLeadershipOptions options, std::unique_ptr<EtcdClient> client);
  struct Found;
  // Whether this process has the key. Waits while another one has it.
  Result<bool> TryToLead(EtcdClient& client);
  Result<Found> Read(EtcdClient& client) const;
  Status Grant(EtcdClient& client);
  Result<bool> Take(EtcdClient& client, const Found& found);
  void AwaitEnd(EtcdClient& client, const Found& found, const EpochClaim& leader);
  void KeepAlive();
  void WriteAnnouncement();
  bool WriteRaisedEpoch();

  const EtcdLeadershipOptions options_;
  const std::unique_ptr<EtcdClient> client_;  // for the thread, and before it for the probe's
  EpochClaim claim_;                          // under the mutex once the thread runs
  std::optional<EpochClaim> other_;           // that led when the key was read last
  std::uint64_t epoch_ = 0;
  std::int64_t lease_ = 0;  // 0: none was granted
  std::int64_t revision_ = 0;
  std::atomic<std::int64_t> valid_until_ns_ = 0;
  std::atomic<bool> lease_ended_ = false;
  std::atomic<bool> epoch_raised_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool wake_ = false;
  bool announced_ = true;       // `claim_`, as it is
  std::uint64_t raise_to_ = 0;  // 0: the epoch need not be raised
  std::function<void()> on_answer_ = [] {};
  std::thread thread_;
};

// The key that a leader writes with every transaction: the number of the newest one.
std::string EtcdTransactionKey(const EtcdKeys& keys, std::uint64_t epoch);
inline constexpr char kEtcdLeaderKey[] = "leader";

}  // namespace muster
