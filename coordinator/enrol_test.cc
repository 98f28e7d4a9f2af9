// Nodes come in, speak for themselves only, and are put out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "common/base/version.h"
#include "common/security/certificate_request.h"
#include "common/security/enrolment.h"
#include "common/security/issued_register.h"
#include "common/security/join_token.h"
#include "coordinator/service/authenticator.h"
#include "muster/v1/enrol_api.grpc.pb.h"
#include "muster/v1/worker_api.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/tls_server_test.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A worker's stream that has sent Hello.
struct Session {
  Session(const std::shared_ptr<grpc::Channel>& channel, const std::string& node)
      : stub(v1::Worker::NewStub(channel)) {
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    stream = stub->Session(&context);
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_node(node);
    hello.set_instance("i");
    hello.set_host_id("h");
    hello.set_slots(1);
    stream->Write(message);
  }
  bool Welcomed() {
    v1::CoordinatorMessage message;
    return stream->Read(&message) && message.has_welcome();
  }
  grpc::Status End() {
    v1::CoordinatorMessage message;
    while (stream->Read(&message)) {
    }
    return stream->Finish();
  }

  std::unique_ptr<v1::Worker::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream;
};

class EnrolTest : public TlsServerTest {
 protected:
  std::string TokenFor(const std::string& node) {
    const auto enrolment = Enrolment::Open(ours_.security_dir());
    EXPECT_TRUE(enrolment.ok()) << enrolment.status().ToString();
    const auto token = enrolment->MakeToken(node, 10min, SystemClock().UnixMillis());
    EXPECT_TRUE(token.ok()) << token.status().ToString();
    return *token;
  }

  static v1::JoinRequest RequestFor(const JoinToken& token, const KeyAndRequest& own,
                                    const std::string& node) {
    v1::JoinRequest request;
    request.set_token_id(token.id);
    request.set_secret(token.secret);
    request.set_node(node);
    request.set_request_pem(own.csr_pem);
    return request;
  }
  Result<std::string> Ask(const v1::JoinRequest& request, const std::string& ca_pem) {
    v1::JoinResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    // A connection that fails is tried again, as workers do: gRPC 1.51 reads errno of connect()
    // only after other calls, so that of many threads at once one may fail for no reason.
    context.set_wait_for_ready(true);
    const auto stub = v1::Enrol::NewStub(OpenTlsChannelToJoin(JoinDoor(), ca_pem));
    MUSTER_RETURN_IF_ERROR(FromGrpcStatus(stub->Join(&context, request, &response)));
    return response.certificate_pem();
  }

  // As a node does it; where it is let in, its credentials' directory.
  Result<std::string> Join(const std::string& text, const std::string& node) {
    MUSTER_ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(text));
    MUSTER_ASSIGN_OR_RETURN(const KeyAndRequest own,
                            MakeCertificateRequest({Role::kNode, node, token.cluster}));
    MUSTER_ASSIGN_OR_RETURN(const std::string certificate,
                            Ask(RequestFor(token, own, node), token.ca_pem));
    const std::string dir = dir_ + "/joined-" + node;
    MUSTER_RETURN_IF_ERROR(WriteCredentials(dir, {token.ca_pem, certificate, own.key_pem}));
    return dir;
  }

  Status Renew(const std::string& dir) {
    MUSTER_ASSIGN_OR_RETURN(const Credentials now, LoadCredentials(dir));
    MUSTER_ASSIGN_OR_RETURN(const KeyAndRequest next, MakeCertificateRequest(now.identity));
    v1::RenewRequest request;
    request.set_request_pem(next.csr_pem);
    v1::RenewResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    MUSTER_RETURN_IF_ERROR(
        FromGrpcStatus(v1::Enrol::NewStub(Channel(dir))->Renew(&context, request, &response)));
    return WriteCredentials(dir, {now.ca_pem, response.certificate_pem(), next.key_pem});
  }
};

TEST_F(EnrolTest, ANodeJoinsByItsTokenOnceAndIsWelcome) {
  StartTlsServer();
  const std::string token = TokenFor("n1");
  EXPECT_EQ(Join(token, "n2").status().code(), StatusCode::kPermissionDenied);
  const auto dir = Join(token, "n1");
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  EXPECT_EQ(LoadCredentials(*dir)->identity, (Identity{Role::kNode, "n1", "lab"}));
  EXPECT_TRUE(Session(Channel(*dir), "n1").Welcomed());
  EXPECT_EQ(Join(token, "n1").status().code(), StatusCode::kPermissionDenied);
}

TEST_F(EnrolTest, WithoutACertificateTheHandshakeFailsIfJoiningIsOff) {
  StartTlsServer();
  const JoinToken token = *ParseJoinToken(TokenFor("n1"));
  v1::JoinResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  const auto stub = v1::Enrol::NewStub(OpenTlsChannelToJoin(Door(), token.ca_pem));
  EXPECT_EQ(stub->Join(&context, {}, &response).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EnrolTest, WhereNodesJoinNothingElseIsServed) {
  StartTlsServer();
  const auto channel = OpenTlsChannelToJoin(JoinDoor(), ours_.authority().certificate_pem());
  v1::RenewResponse renewed;
  grpc::ClientContext renew;
  EXPECT_EQ(v1::Enrol::NewStub(channel)->Renew(&renew, {}, &renewed).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  v1::VersionResponse version;
  grpc::ClientContext ask;
  EXPECT_EQ(v1::Client::NewStub(channel)->Version(&ask, {}, &version).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(EnrolTest, NodesJoinNowhereUnlessTheOperatorConfiguresIt) {
  ServerOptions options = Options();
  options.tls_listen = "127.0.0.1:0";
  StartServer(std::move(options));
  EXPECT_EQ(JoinDoor(), "");
}

TEST_F(EnrolTest, AnAnswerThatWasLostCostsNoToken) {
  StartTlsServer();
  const JoinToken token = *ParseJoinToken(TokenFor("n1"));
  const KeyAndRequest own = *MakeCertificateRequest({Role::kNode, "n1", token.cluster});
  const v1::JoinRequest request = RequestFor(token, own, "n1");
  const auto lost = Ask(request, token.ca_pem);
  ASSERT_TRUE(lost.ok()) << lost.status().ToString();
  const auto again = Ask(request, token.ca_pem);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, *lost);
}

TEST_F(EnrolTest, ManyWhoComeAtOnceAllGetTheirCertificates) {
  StartTlsServer();
  constexpr int kNodes = 64;
  std::vector<std::string> tokens;
  for (int i = 0; i < kNodes; ++i) tokens.push_back(TokenFor("n" + std::to_string(i)));
  std::vector<Status> outcomes(kNodes);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNodes; ++i)
    threads.emplace_back(
        [&, i] { outcomes[i] = Join(tokens[i], "n" + std::to_string(i)).status(); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  const auto issued = ReadIssued(ours_.security_dir() + "/issued.jsonl");
  EXPECT_EQ(std::count_if(issued->begin(), issued->end(),
                          [](const auto& entry) { return entry.identity.role == Role::kNode; }),
            kNodes);
}

TEST_F(EnrolTest, AForgedTokenAndAHugeRequestAreRefused) {
  StartTlsServer();
  auto token = ParseJoinToken(TokenFor("n1"));
  ASSERT_TRUE(token.ok());
  token->secret.back() ^= 1;
  EXPECT_EQ(Join(*EncodeJoinToken(*token), "n1").status().code(), StatusCode::kUnauthenticated);
  v1::JoinRequest request;
  request.set_token_id(token->id);
  request.set_request_pem(std::string(100'000, 'x'));
  v1::JoinResponse response;
  grpc::ClientContext context;
  const auto stub = v1::Enrol::NewStub(OpenTlsChannelToJoin(JoinDoor(), token->ca_pem));
  EXPECT_EQ(stub->Join(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  // So is one of a node that is known.
  v1::RenewRequest renewal;
  renewal.set_request_pem(std::string(100'000, 'x'));
  v1::RenewResponse renewed;
  grpc::ClientContext known;
  EXPECT_EQ(v1::Enrol::NewStub(Channel(ours_.Make(Role::kNode, "n2")))
                ->Renew(&known, renewal, &renewed)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(EnrolTest, JoinsAreLimitedInNumber) {
  StartTlsServer();
  const auto stub =
      v1::Enrol::NewStub(OpenTlsChannelToJoin(JoinDoor(), ours_.authority().certificate_pem()));
  bool limited = false;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5000 && !limited; ++i) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i == 50 && i < 2 * Authenticator::kUnknownPerSecond * took.count())
      GTEST_SKIP() << "50 calls take " << took.count() << " s, which the limit admits";
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    v1::JoinResponse response;
    limited =
        stub->Join(&context, {}, &response).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }
  EXPECT_TRUE(limited);
  // They do not delay known nodes.
  EXPECT_TRUE(Session(Channel(ours_.Make(Role::kNode, "n1")), "n1").Welcomed());
}

TEST_F(EnrolTest, ACertificateSpeaksForItsOwnNodeOnly) {
  StartTlsServer();
  const auto channel = Channel(ours_.Make(Role::kNode, "n1"));
  const grpc::Status other = Session(channel, "n2").End();
  EXPECT_EQ(other.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(other.error_message(), HasSubstr("is not valid for node 'n2'"));
  EXPECT_EQ(FindNode("n2").name(), "");
  EXPECT_TRUE(Session(channel, "n1").Welcomed());
}

TEST_F(EnrolTest, AReportAboutAnotherNodesRankIsIgnored) {
  StartTlsServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("alone", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  Session liar(Channel(ours_.Make(Role::kNode, "n2")), "n2");
  ASSERT_TRUE(liar.Welcomed());
  v1::WorkerMessage message;
  v1::RankExited& exited = *message.mutable_rank_exited();
  exited.set_job_id(job);
  exited.set_generation(1);
  exited.mutable_exit()->set_exit_code(3);
  ASSERT_TRUE(liar.stream->Write(message));
  // A second Hello is answered by the end of the stream: by then everything before it was handled.
  message.Clear();
  message.mutable_hello()->set_node("n2");
  ASSERT_TRUE(liar.stream->Write(message));
  (void)liar.End();
  const auto after = Get(job);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(after->generation(), 1);
  n1->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(EnrolTest, ARenewalGivesAnotherCertificateAndEndsNoStream) {
  StartTlsServer();
  const std::string dir = ours_.Make(Role::kNode, "n1");
  const std::string before = LoadCredentials(dir)->serial;
  Session session(Channel(dir), "n1");
  ASSERT_TRUE(session.Welcomed());
  const Status renewed = Renew(dir);
  ASSERT_TRUE(renewed.ok()) << renewed.ToString();
  EXPECT_NE(LoadCredentials(dir)->serial, before);
  EXPECT_EQ(FindNode("n1").state(), v1::NODE_STATE_READY);
  v1::WorkerMessage beat;
  beat.mutable_heartbeat();
  EXPECT_TRUE(session.stream->Write(beat));
  session.context.TryCancel();
  (void)session.End();
  EXPECT_TRUE(Session(Channel(dir), "n1").Welcomed());
}

TEST_F(EnrolTest, AWatchOfARevokedAdminEnds) {
  StartTlsServer();
  const std::string job = SubmitId(Spec("waits", 1));
  const auto stub = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "ann")));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  v1::WatchRequest request;
  request.set_job(job);
  const auto watch = stub->Watch(&context, request);
  v1::WatchUpdate update;
  ASSERT_TRUE(watch->Read(&update));
  const TimePoint begin = SystemClock().Now();
  RevokeNow(Role::kAdmin, "ann");
  while (watch->Read(&update)) {
  }
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_LT(ToSeconds(SystemClock().Now() - begin), 5);
}

TEST_F(EnrolTest, ANewAuthorityEndsACoordinatorOfTheOldOne) {
  StartTlsServer();
  Session session(Channel(ours_.Make(Role::kNode, "n1")), "n1");
  ASSERT_TRUE(session.Welcomed());
  // As `muster init --force --yes` does it.
  std::filesystem::rename(ours_.security_dir(), dir_ + "/security.replaced");
  ClusterCredentials next(dir_);
  next.Write(next.security_dir() + "/coordinator", Role::kCoordinator, "coordinator");
  EXPECT_EQ(session.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  thread_.join();
  server_.reset();
  EXPECT_EQ(ExitCodeOf(outcome_), kExitFailed);
  EXPECT_THAT(outcome_.message(), HasSubstr(next.authority().info().fingerprint));
  EXPECT_THAT(outcome_.message(), HasSubstr("new join tokens"));
  // Started again it serves the new one.
  StartTlsServer();
  const auto joined = Join(TokenFor("n1"), "n1");
  ASSERT_TRUE(joined.ok()) << joined.status().ToString();
  EXPECT_EQ(LoadCredentials(*joined)->ca_pem, next.authority().certificate_pem());
}

TEST_F(EnrolTest, ACoordinatorOfOneAuthorityDoesNotSignForAnother) {
  ClusterCredentials other;
  ServerOptions options = Options();
  options.tls_listen = "127.0.0.1:0";
  options.tls = other.Make(Role::kCoordinator, "coordinator");
  const Status status = Server::Start(options).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("another authority"));
}

TEST_F(EnrolTest, ARevokedNodesStreamEndsWithinSecondsAndItDoesNotComeBack) {
  StartTlsServer();
  const std::string dir = ours_.Make(Role::kNode, "n1");
  Session session(Channel(dir), "n1");
  Session other(Channel(ours_.Make(Role::kNode, "n2")), "n2");
  ASSERT_TRUE(session.Welcomed());
  ASSERT_TRUE(other.Welcomed());
  const TimePoint begin = SystemClock().Now();
  RevokeNow(Role::kNode, "n1");
  const grpc::Status end = session.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAUTHENTICATED) << end.error_message();
  EXPECT_LT(ToSeconds(SystemClock().Now() - begin), 5);
  EXPECT_EQ(Session(Channel(dir), "n1").End().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_FALSE(Renew(dir).ok());
  // Messages of the other one are handled as before.
  v1::WorkerMessage beat;
  beat.mutable_heartbeat();
  ASSERT_TRUE(other.stream->Write(beat));
  EXPECT_TRUE(Eventually([&] { return FindNode("n2").state() == v1::NODE_STATE_READY; }));
}

}  // namespace
}  // namespace muster
