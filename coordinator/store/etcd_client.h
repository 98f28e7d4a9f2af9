// EtcdClient: calls of etcd's v3 API (proto/etcd/etcd.proto) to one member after the other.
//
// Owned by a part of EtcdStore; one thread at a time calls it, but Cancel, which any thread may. A
// call blocks until a member has answered, or `within` has passed. It goes to the member that has
// answered last, and after a failure to the next one: a member that is stopped costs one call half
// a second, and later ones nothing. So a request may be sent twice, and may be carried out although
// the call fails: IsUnanswered tells these failures from answers.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "coordinator/store/etcd_access.h"
#include "etcd/etcd.pb.h"

namespace muster {

// How long a call that starts or loads waits for an answer.
inline constexpr Duration kEtcdAnswer = std::chrono::seconds(10);

// Whether the request may have been carried out, or may still be.
bool IsUnanswered(const Status& status);

// As etcd writes them; empty keys and ranges are not used.
etcdserverpb::RequestOp EtcdPut(std::string key, std::string value, std::int64_t lease = 0);
etcdserverpb::RequestOp EtcdDelete(std::string key, std::string range_end = "");
etcdserverpb::RequestOp EtcdGet(std::string key);
etcdserverpb::Compare EtcdCreatedAt(std::string key, std::int64_t revision);
// The end of the range of all keys that begin with `prefix`.
std::string EtcdPrefixEnd(std::string prefix);

class EtcdClient {
 public:
  // Opens channels and, where there is a user, gets a token: kUnauthenticated, kUnavailable.
  static Result<std::unique_ptr<EtcdClient>> Open(EtcdAccess access, Duration within);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  Result<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                            Duration within);
  Result<etcdserverpb::TxnResponse> Transact(const etcdserverpb::TxnRequest& request,
                                             Duration within);
  // The lease's id; the server may give it a longer life than `seconds`.
  Result<std::int64_t> GrantLease(std::int64_t seconds, Duration within);
  Status RevokeLease(std::int64_t lease, Duration within);
  // What the lease has left, counted from when the request was sent at the earliest; zero: it has
  // ended.
  Result<Duration> KeepAlive(std::int64_t lease, Duration within);
  // Returns when the key has changed after `revision`, the time is over, or the member failed.
  void AwaitChange(const std::string& key, std::int64_t revision, Duration within);
  Status Compact(std::int64_t revision, Duration within);
  // The members that answer; kUnavailable: none does.
  struct MemberStatus {
    std::string address;
    std::string version;
    std::int64_t file_bytes = 0;
    std::int64_t used_bytes = 0;  // of these
    bool leads = false;
  };
  Result<std::vector<MemberStatus>> Members(Duration within);
  std::size_t member_count() const { return members_.size(); }
  // Gives back to the disk what the member's file does not use. It answers nothing meanwhile.
  Status Defragment(const std::string& address, Duration within);

  // Ends the call under way and all later ones, with kCancelled.
  void Cancel();
  // For messages.
  const std::string& names() const { return names_; }

 private:
  struct Member;
  using Attempt = std::function<grpc::Status(Member&, grpc::ClientContext&)>;

  explicit EtcdClient(EtcdAccess access);
  Status OpenChannels();
  Status Authenticate(Duration within);
  Status Call(Duration within, const Attempt& attempt);
  Status CallWithToken(Duration within, const Attempt& attempt);
  Status Try(Member& member, Duration within, const Attempt& attempt);
  void Pause(Duration duration);
  bool IsStaleToken(const Status& status) const;

  const EtcdAccess access_;
  std::string names_;
  std::vector<std::unique_ptr<Member>> members_;
  std::size_t current_ = 0;  // that has answered last
  std::string token_;

  std::mutex mutex_;
  std::condition_variable canceled_changed_;
  bool canceled_ = false;
  grpc::ClientContext* under_way_ = nullptr;
};

}  // namespace muster
