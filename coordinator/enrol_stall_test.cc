// Enrolment while the disk of the authority does not answer: a lock on its directory that is never
// released makes every signature wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <mutex>
#include <vector>

#include "common/security/certificate_request.h"
#include "common/security/private_files.h"
#include "coordinator/service/enrol_service.h"
#include "muster/v1/enrol_api.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/slowness.h"
#include "tests/support/tls_server_test.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

// What thousands of calls take at most where many others want the processors.
constexpr auto kAllCalls = 120s;
// Fewer than the calls of one connection, so that what it has sent at once stays below
// Probation::kBehind: a renewal admits no connection.
constexpr std::size_t kCallsOfOne = 32;

class EnrolStallTest : public TlsServerTest {
 protected:
  EnrolStallTest() {
    StartTlsServer();
    const std::string dir = ours_.Make(Role::kNode, "n1");
    request_.set_request_pem(MakeCertificateRequest({Role::kNode, "n1", ours_.cluster()})->csr_pem);
    for (std::size_t i = 0; i <= 2 * EnrolService::kMaxQueued / kCallsOfOne; ++i)
      stubs_.push_back(v1::Enrol::NewStub(Channel(dir)));
    auto lock = LockDirectory(ours_.security_dir());
    EXPECT_TRUE(lock.ok()) << lock.status().ToString();
    lock_ = *std::move(lock);
  }
  // Every call has ended before what they end in goes.
  ~EnrolStallTest() override {
    lock_ = UniqueFd();
    EXPECT_TRUE(Eventually([this] { return Ended() == calls_.size(); }, kAllCalls));
  }

  void Renew() {
    Call& call = calls_.emplace_back();
    call.context.set_deadline(std::chrono::system_clock::now() + 2 * kAllCalls);
    v1::Enrol::Stub& stub = *stubs_[calls_.size() % stubs_.size()];
    stub.async()->Renew(&call.context, &request_, &call.response,
                        [this](const grpc::Status& status) {
                          const std::lock_guard lock(mutex_);
                          ends_.push_back(status.error_code());
                        });
  }
  std::size_t Ended() {
    const std::lock_guard lock(mutex_);
    return ends_.size();
  }
  std::size_t Ended(grpc::StatusCode code) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count(ends_.begin(), ends_.end(), code));
  }

  struct Call {
    grpc::ClientContext context;
    v1::RenewResponse response;
  };
  v1::RenewRequest request_;
  std::vector<std::unique_ptr<v1::Enrol::Stub>> stubs_;
  UniqueFd lock_;
  std::deque<Call> calls_;
  std::mutex mutex_;
  std::vector<grpc::StatusCode> ends_;
};

TEST_F(EnrolStallTest, AsManyAsMayWaitWaitAndTheNextIsRefusedAtOnce) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "thousands of calls take minutes in this build";
  const auto refused = [&] { return Ended(grpc::StatusCode::RESOURCE_EXHAUSTED); };
  // As many as are being signed, as may wait, and some. Again, where a slow machine took so long to
  // say it that the first have given up on the lock.
  const Deadline deadline = Deadline::After(kAllCalls);
  while (refused() == 0 && !deadline.Expired()) {
    for (std::size_t i = 0; i < 2 * EnrolService::kMaxQueued + 50; ++i) Renew();
    (void)Eventually([&] { return refused() > 0; }, 5s);
  }
  EXPECT_GE(refused(), 1u);
  lock_ = UniqueFd();
  EXPECT_TRUE(Eventually([&] { return Ended() == calls_.size(); }, kAllCalls));
  EXPECT_GE(Ended(grpc::StatusCode::OK), EnrolService::kMaxQueued) << "who waited gets it";
}

TEST_F(EnrolStallTest, ACoordinatorThatEndsWaitsForNoCallThatIsStuckThere) {
  Renew();
  EXPECT_FALSE(Eventually([&] { return Ended() > 0; }, 300ms)) << "the lock holds nobody up";
  auto run = std::async(std::launch::async, [&] {
    server_->Stop();
    thread_.join();
  });
  // No call waits longer than 10 s for such a lock.
  EXPECT_EQ(run.wait_for(8s), std::future_status::ready);
  // The caller hears of it after the server has said it.
  EXPECT_TRUE(Eventually([&] { return Ended() == 1; }));
  EXPECT_EQ(Ended(grpc::StatusCode::UNAVAILABLE), 1u);
  lock_ = UniqueFd();
  run.get();
  server_.reset();
}

}  // namespace
}  // namespace muster
