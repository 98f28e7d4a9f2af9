// CertificateRotator: keeps the coordinator's TLS files up to date while it runs. Each second it
// checks whether a list of revoked certificates has changed, updates the authenticator, and renews
// the coordinator's own certificate after two thirds of its lifetime. If the authority itself has
// been replaced it reports that and stops: the coordinator must end, because its connections and
// its signing key are the old authority's.
//
// Owned by the server, loop's thread; reading and writing happen on a separate thread, because the
// disk may be remote. A failure is logged once, and retried; a renewal after growing pauses,
// because each may cost a line in the register.
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

struct CertificateRotatorOptions {
  std::string credentials_dir;
  std::vector<std::string> revocations;  // files with lists, all of which count
  std::string authority_dir;             // empty: renewal is external
  // After each look, on the loop: ends streams whose certificates are no longer valid.
  std::function<void()> on_look;
  // Called once instead of `on_look`: the files of either directory show another authority.
  std::function<void(const Status&)> on_another_authority;
  Duration interval = std::chrono::seconds(1);  // between two looks
};

class CertificateRotator {
 public:
  CertificateRotator(EventLoop& loop, Authenticator& authenticator,
                     CertificateRotatorOptions options);
  // Waits for the look that is under way.
  ~CertificateRotator();

  // The first look, on the calling thread: a certificate that is due is renewed before its first
  // use, and a list that cannot be read admits no client. kFailedPrecondition if credentials and
  // authority do not belong together.
  Status Start();

  // Expiry of the certificate in use; Unix time in milliseconds.
  std::int64_t not_after_ms() const { return not_after_ms_; }
  // Failed renewals of that certificate.
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
  // Functions that the thread has posted keep it alive after this.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster
