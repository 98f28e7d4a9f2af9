// CertificateRotator: keeps what the coordinator's TLS stands on up to date while it runs. Each
// second it looks whether a list of revoked certificates is another one, tells the authenticator,
// and renews the coordinator's own certificate when two thirds of its lifetime are over. When the
// authority itself has been replaced it says so and looks no more: the coordinator is to end, since
// its connections and its signing key are the old one's.
//
// Owned by the server, loop's thread; reading and writing happen on a thread of its own, since the
// disk may be a network's. What fails is said in the log, once, and tried again; a renewal after
// pauses that grow, since each may cost a line in the register.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/security/certificate_authority.h"
#include "common/security/revocation.h"
#include "coordinator/service/authenticator.h"

namespace muster {

// When a renewal that has failed is tried again: after a pause that doubles from 1 s to 5 min. A
// value; one thread.
class RenewalPause {
 public:
  bool Over(TimePoint now) const { return now >= until_; }
  void OnFailed(TimePoint now);
  void OnDone() { *this = RenewalPause(); }

 private:
  Duration next_ = std::chrono::seconds(1);
  TimePoint until_ = TimePoint::min();
};

struct CertificateRotatorOptions {
  std::string credentials_dir;
  std::vector<std::string> revocations;  // files with lists, all of which count
  std::string authority_dir;             // empty: somebody else renews
  // After each look, on the loop: streams of those whose certificates are not good any more are to
  // end.
  std::function<void()> on_look;
  // Instead of `on_look`, once: there is another authority now, by the files of either directory.
  std::function<void(const Status&)> on_another_authority;
  Duration interval = std::chrono::seconds(1);  // between two looks
};

class CertificateRotator {
 public:
  CertificateRotator(EventLoop& loop, Authenticator& authenticator,
                     CertificateRotatorOptions options);
  // Waits for what is under way.
  ~CertificateRotator();

  // The first look, on the calling thread: a certificate that is due is renewed before anybody sees
  // it, and a list that cannot be read lets nobody in. kFailedPrecondition where credentials and
  // authority do not belong together.
  Status Start();

  // Of the certificate in use; Unix time in milliseconds.
  std::int64_t not_after_ms() const { return not_after_ms_; }
  // Of that certificate that have failed.
  std::uint64_t failed_renewals() const { return failed_renewals_; }

 private:
  struct PollResult;
  void Schedule();
  void Report(const PollResult& look);

  EventLoop& loop_;
  std::shared_ptr<PollResult> look_;  // the thread's
  std::int64_t not_after_ms_ = 0;
  std::uint64_t failed_renewals_ = 0;
  std::string last_problem_;
  Timer timer_;
  WorkerPool pool_{"credentials", 1, 2};
  // Outlives the keeper in functions that the thread has posted.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster
