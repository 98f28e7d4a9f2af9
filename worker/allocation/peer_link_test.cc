#include "worker/allocation/peer_link.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <optional>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "common/rpc/tls.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"
#include "muster/v1/allocation_api.grpc.pb.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/eventually.h"
#include "tests/support/grpc_end.h"
#include "tests/support/whatever_channel.h"
#include "worker/allocation/allocation_security.h"

namespace muster::worker {
namespace {

// A question whose answer does not depend on it.
constexpr std::chrono::seconds kLimit{50};

class PeerLinkTest : public testing::Test {
 protected:
  // Credentials of one allocation for a node; those of another lie elsewhere.
  std::string LocalDir(const std::string& allocation, const std::string& node) {
    const std::string local = temp_ / (allocation + "-" + node);
    EXPECT_TRUE(
        MakeAllocationCredentials({allocation, temp_ / (allocation + "-ca"), local, node}).ok());
    return local;
  }
  std::unique_ptr<PeerLink> Listen(const std::string& allocation, int run, const std::string& node,
                                   PeerLink::OnAsked on_asked) {
    const std::string local = LocalDir(allocation, node);
    auto link = PeerLink::Listen(loop_,
                                 {.allocation = allocation,
                                  .run = run,
                                  .address = address_,
                                  .answers_with = CoordinatorCredentials(local),
                                  .asks_with = NodeCredentials(local)},
                                 std::move(on_asked));
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return link.ok() ? *std::move(link) : nullptr;
  }
  static PeerView ViewOf(const std::string& node, int run) {
    PeerView view;
    view.self = {3, node, "10.0.0.3:1"};
    view.run = run;
    return view;
  }
  Result<PeerView> Ask(PeerLink& from, const std::string& address, const PeerView& view) {
    std::optional<Result<PeerView>> got;
    from.Ask(address, view, kLimit, [&](const Result<PeerView>& answer) { got = answer; });
    // Not by Run, which no loop does twice.
    while (!got) loop_.context().run_one();
    return *got;
  }
  PeerLink::OnAsked Nobody() {
    return [](const PeerView&) {
      ADD_FAILURE() << "asked";
      return PeerView{};
    };
  }

  TempDirForTest temp_;
  EventLoop loop_;
  std::string address_ = "127.0.0.1";
};

TEST_F(PeerLinkTest, BothSidesLearnWhatTheOtherKnows) {
  PeerView asked;
  const auto answering = Listen("slurm-1", 2, "n0", [&](const PeerView& peer) {
    asked = peer;
    PeerView view = ViewOf("n0", 2);
    view.leadership = {9, {0, "n0", "10.0.0.0:1"}, "10.0.0.0:2", "10.0.0.0:3"};
    view.leader_answers = true;
    view.unfit = true;
    view.ending = Ending{75, EndAction::kRequeue, "time", {"n4", "n5"}};
    return view;
  });
  const auto asking = Listen("slurm-1", 2, "n3", Nobody());
  PeerView mine = ViewOf("n3", 2);
  mine.self.has_worker = false;
  mine.stop_seconds = 12.5;
  mine.stop_reason = "SIGTERM";
  const auto answer = Ask(*asking, answering->address(), mine);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(asked.self, mine.self);
  EXPECT_EQ(asked.stop_seconds, 12.5);
  EXPECT_EQ(asked.stop_reason, "SIGTERM");
  EXPECT_FALSE(asked.ending);
  EXPECT_EQ(answer->leadership.epoch, 9u);
  EXPECT_EQ(answer->leadership.grpc, "10.0.0.0:2");
  EXPECT_EQ(answer->leadership.leader.node, "n0");
  EXPECT_TRUE(answer->leader_answers);
  EXPECT_FALSE(asked.leader_answers);
  EXPECT_TRUE(answer->unfit);
  EXPECT_EQ(answer->ending, (Ending{75, EndAction::kRequeue, "time", {"n4", "n5"}}));
  EXPECT_LT(answer->stop_seconds, 0);
}

TEST_F(PeerLinkTest, AnotherRunOfTheAllocationIsNotListenedTo) {
  const auto answering = Listen("slurm-1", 1, "n0", Nobody());
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  const auto answer = Ask(*asking, answering->address(), ViewOf("n3", 0));
  EXPECT_EQ(answer.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(PeerLinkTest, ACertificateSpeaksForItsNodeAlone) {
  const auto answering =
      Listen("slurm-1", 0, "n0", [](const PeerView&) { return ViewOf("n1", 0); });
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  const Status answered = Ask(*asking, answering->address(), ViewOf("n3", 0)).status();
  EXPECT_EQ(answered, PermissionDenied("the certificate of n0 is not valid for node n1"));
}

TEST_F(PeerLinkTest, NoSupervisorAsksInAnothersName) {
  const auto answering = Listen("slurm-1", 0, "n0", Nobody());
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  const Status asked = Ask(*asking, answering->address(), ViewOf("n4", 0)).status();
  EXPECT_EQ(asked, PermissionDenied("the certificate of n3 is not valid for node n4"));
}

class PeerLinkRoleTest : public PeerLinkTest, public testing::WithParamInterface<Role> {};

TEST_P(PeerLinkRoleTest, MayNotAsk) {
  const auto answering = Listen("slurm-1", 0, "n0", Nobody());
  const auto authority = CertificateAuthority::Open(temp_ / "slurm-1-ca");
  ASSERT_TRUE(authority.ok());
  const std::string dir = temp_ / "asking";
  const auto issued = authority->Issue({GetParam(), "n3", "slurm-1"}, std::chrono::hours(1),
                                       SystemClock().UnixMillis());
  ASSERT_TRUE(issued.ok());
  ASSERT_TRUE(WriteCredentials(
                  dir, {authority->certificate_pem(), issued->certificate_pem, issued->key_pem})
                  .ok());
  const auto asking =
      PeerLink::Listen(loop_,
                       {.allocation = "slurm-1",
                        .address = address_,
                        .answers_with = CoordinatorCredentials(LocalDir("slurm-1", "n3")),
                        .asks_with = dir},
                       Nobody());
  ASSERT_TRUE(asking.ok());
  const auto answer = Ask(**asking, answering->address(), ViewOf("n3", 0));
  EXPECT_EQ(answer.status(), PermissionDenied("only nodes of this allocation may ask"));
}

INSTANTIATE_TEST_SUITE_P(AllButNodes, PeerLinkRoleTest,
                         testing::Values(Role::kAdmin, Role::kCoordinator, Role::kScraper),
                         [](const auto& role) { return std::string(RoleWord(role.param)); });

// With MayNotAsk each kind of credential is tried; a node's of its own is BothSidesLearn's.
TEST_F(PeerLinkTest, WithoutAValidCertificateAQuestionIsRefused) {
  ClusterCredentials ours;
  ClusterCredentials theirs;
  auto answering = PeerLink::Listen(loop_,
                                    {.allocation = ours.cluster(),
                                     .address = address_,
                                     .answers_with = ours.Make(Role::kCoordinator, "n0"),
                                     .asks_with = ours.Make(Role::kNode, "n0")},
                                    Nobody());
  ASSERT_TRUE(answering.ok()) << answering.status().ToString();
  const std::string& door = (*answering)->address();
  const std::string ca = ours.authority().certificate_pem();
  const struct {
    const char* who;
    std::shared_ptr<grpc::Channel> channel;
    grpc::StatusCode code;
  } rows[] = {
      {"nobody", OpenTlsChannelToJoin(door, ca), grpc::StatusCode::UNAVAILABLE},
      {"expired", OpenWhateverItIs(door, ca, ours.MakeExpired(Role::kNode, "n3")),
       grpc::StatusCode::UNAVAILABLE},
      {"another authority's", OpenWhateverItIs(door, ca, theirs.Make(Role::kNode, "n3")),
       grpc::StatusCode::UNAVAILABLE},
  };
  for (const auto& row : rows) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    v1::PeerView question;
    v1::PeerView answer;
    question.mutable_self()->set_node("n3");
    const grpc::Status status =
        v1::Supervisor::NewStub(row.channel)->Ping(&context, question, &answer);
    EXPECT_EQ(status.error_code(), row.code) << row.who << ": " << status.error_message();
  }
}

TEST_F(PeerLinkTest, AnotherAllocationsCertificateOpensNothing) {
  const auto answering = Listen("slurm-1", 0, "n0", Nobody());
  const auto asking = Listen("slurm-2", 0, "n3", Nobody());
  EXPECT_FALSE(Ask(*asking, answering->address(), ViewOf("n3", 0)).ok());
}

bool HasIpv6() {
  const UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

TEST_F(PeerLinkTest, NodesMayHaveAddressesOfIpv6) {
  if (!HasIpv6()) GTEST_SKIP() << "this host has no ::1";
  address_ = "::1";
  const auto answering =
      Listen("slurm-1", 0, "n0", [](const PeerView&) { return ViewOf("n0", 0); });
  EXPECT_TRUE(answering->address().starts_with("[::1]:")) << answering->address();
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  EXPECT_TRUE(Ask(*asking, answering->address(), ViewOf("n3", 0)).ok());
}

TEST_F(PeerLinkTest, WhoIsNotThereRefusesAtOnce) {
  std::string address;
  {
    const auto gone = Listen("slurm-1", 0, "n0", Nobody());
    address = gone->address();
  }
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  EXPECT_EQ(Ask(*asking, address, ViewOf("n3", 0)).status().code(), StatusCode::kUnavailable);
}

// A refusal proves that the machine answers and the supervisor has ended. gRPC gives its code to
// connections that are lost, too, as those of a node that is cut off.
TEST_F(PeerLinkTest, AConnectionThatIsLostIsNoRefusal) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in door{};
  door.sin_family = AF_INET;
  door.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof door;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&door), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&door), &size), 0);
  std::thread loses([&] { const UniqueFd lost(::accept(listener.get(), nullptr, nullptr)); });
  const auto asking = Listen("slurm-1", 0, "n3", Nobody());
  const auto answer =
      Ask(*asking, "127.0.0.1:" + std::to_string(ntohs(door.sin_port)), ViewOf("n3", 0));
  loses.join();
  EXPECT_EQ(answer.status().code(), StatusCode::kDeadlineExceeded) << answer.status().ToString();
}

// The loop has ended with a question open on both sides: nothing waits for it, and no late answer
// touches the loop, which is gone by then.
TEST_F(PeerLinkTest, ASupervisorEndsWithQuestionsOpen) {
  auto loop = std::make_unique<EventLoop>();  // never run: it answers nothing
  const std::string local = LocalDir("slurm-1", "n0");
  const auto listen = [&] {
    return PeerLink::Listen(*loop,
                            {.allocation = "slurm-1",
                             .address = "127.0.0.1",
                             .answers_with = CoordinatorCredentials(local),
                             .asks_with = NodeCredentials(local)},
                            Nobody());
  };
  auto answering = listen();
  ASSERT_TRUE(answering.ok());
  auto asking = listen();
  ASSERT_TRUE(asking.ok());
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> question = held;
  // A wait for its answer would last longer than any test may take.
  (*asking)->Ask((*answering)->address(), ViewOf("n0", 0), std::chrono::hours(1),
                 [held](const Result<PeerView>&) { ADD_FAILURE() << "told"; });
  held.reset();
  ASSERT_TRUE(Eventually([&] { return (*answering)->unanswered() == 1; }, kLimit));
  asking->reset();
  answering->reset();
  loop.reset();
  EXPECT_TRUE(Eventually([&] { return question.expired(); }, kLimit))
      << "gRPC has called back, without a loop to post to";
}

}  // namespace
}  // namespace muster::worker
