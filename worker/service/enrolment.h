// The node's side of enrolment: how a worker obtains its certificate and renews it.
//
// JoinUntilIn makes a key and exchanges a join token for a certificate of it; the key never leaves
// the node. CertificateRenewal requests the next certificate after two thirds of the lifetime. The
// session uses a new certificate with its next connection; the current connection lives on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/backoff.h"
#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/security/join_token.h"

namespace muster::worker {

struct JoinOptions {
  std::string invitation;  // as text, or a file that holds it; secret
  std::string node;
  std::string credentials_dir;
};

// Tries, of 10 s each, as long as there is no answer, with growing pauses; for the start of a
// worker; blocks. All tries are for one key, so that a lost answer costs no token. Other failures
// are final. OK at once if `credentials_dir` contains the node's valid credentials: the token has
// been used then, and its file may be gone.
Status JoinUntilIn(const JoinOptions& options);

// The invitation in `text`, or in the file that it names.
Result<Invitation> InvitationOf(const std::string& text);

struct RenewalOptions {
  std::string credentials_dir;
  // The coordinator's address at that moment.
  std::function<Result<std::string>()> find_coordinator;
};

// Owned by the server, loop's thread; what blocks runs on a thread of its own. A failed renewal is
// retried after a pause that doubles from 1 s to 5 min, and is reported in log and metrics.
class CertificateRenewal {
 public:
  // `jitter` is between 0 and 1: where within the last tenth before it is due this node renews, so
  // that nodes that joined together do not renew together.
  CertificateRenewal(EventLoop& loop, RenewalOptions options, double jitter);
  ~CertificateRenewal();

  void Start();

  // Expiry of the certificate on the disk, as last seen; 0: none could be read.
  std::int64_t not_after_ms() const { return not_after_ms_; }
  std::uint64_t renewals() const { return renewals_; }
  std::uint64_t failures() const { return failures_; }

 private:
  void Schedule();
  void Renew();
  void OnRenewed(const Status& status);

  EventLoop& loop_;
  const RenewalOptions options_;
  const double jitter_;
  Backoff pauses_;
  std::int64_t not_after_ms_ = 0;
  std::uint64_t renewals_ = 0;
  std::uint64_t failures_ = 0;
  Timer timer_;
  WorkerPool pool_{"renewal", 1, 2};
  // Functions that the thread has posted keep it alive after this.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// When to renew: between nine tenths of the way to `due_ms` and there, by `jitter`.
std::int64_t RenewAtMs(std::int64_t issued_ms, std::int64_t due_ms, double jitter);

}  // namespace muster::worker
