// Who gets in where: every method of every service, tried with every kind of credentials at a real
// coordinator.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/security/testing/forged_certificate.h"
#include "common/security/user_authority.h"
#include "coordinator/service/authorization.h"
#include "muster/v1/enrol_api.grpc.pb.h"
#include "muster/v1/secret_api.grpc.pb.h"
#include "muster/v1/worker_api.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/https_get.h"
#include "tests/support/tls_server_test.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// "/muster.v1.Client/Submit" of every service that a coordinator has. A supervisor's own one is
// tried in worker/allocation/peer_link_test.cc.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::SubmitRequest::descriptor()->file(), v1::WorkerMessage::descriptor()->file(),
        v1::JoinRequest::descriptor()->file(), v1::SetSecretRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s)
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.push_back("/" + file->service(s)->full_name() + "/" +
                          file->service(s)->method(m)->name());
  }
  return methods;
}

// How a call ends that carries one empty message.
grpc::Status CallWithNothing(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method, const std::string& token) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  if (!token.empty()) AttachToken(context, token);
  grpc::CompletionQueue queue;
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  await();
  const grpc::Slice nothing;
  call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(), nullptr);
  await();
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (await());
  grpc::Status status;
  call->Finish(&status, nullptr);
  await();
  return status;
}

bool IsDenied(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
         status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

struct Credential {
  std::shared_ptr<grpc::Channel> channel;
  std::string token;
  std::set<std::string> services;  // whose methods it may call, or single methods
};

class AccessTest : public TlsServerTest {
 protected:
  std::map<std::string, Credential> EveryKind() {
    const std::string ca = ours_.authority().certificate_pem();
    const std::string plain = server_->endpoint().grpc;
    const std::string client = "/muster.v1.Client/";
    const std::string worker = "/muster.v1.Worker/";
    const std::string secrets = "/muster.v1.Secrets/";
    const std::string fetch = secrets + "FetchSecrets";
    const std::set<std::string> join = {"/muster.v1.Enrol/Join", "/muster.v1.Enrol/Issuers",
                                        "/muster.v1.Enrol/Login"};
    const auto with = [&](Role role, const std::string& name) {
      return OpenWhateverItIs(Door(), ca, ours_.Make(role, name));
    };
    const auto nobody = OpenTlsChannelToJoin(Door(), ca);
    const auto joining = OpenTlsChannelToJoin(JoinDoor(), ca);
    return {
        {"plain text, the token", {OpenChannel(plain), token_, {client, worker, secrets}}},
        {"plain text, no token", {OpenChannel(plain), "", {}}},
        {"plain text, another token", {OpenChannel(plain), std::string(64, '0'), {}}},
        {"TLS, nobody", {nobody, "", {}}},
        {"TLS, nobody with the token", {nobody, token_, {}}},
        {"where nodes join, nobody", {joining, "", join}},
        {"where nodes join, nobody with the token", {joining, token_, join}},
        {"where nodes join, admin",
         {OpenWhateverItIs(JoinDoor(), ca, ours_.Make(Role::kAdmin, "bob")), "", join}},
        {"TLS, admin",
         {with(Role::kAdmin, "ann"),
          "",
          {client, secrets + "SetSecret", secrets + "ListSecrets", secrets + "RemoveSecret",
           secrets + "RotateSecretKey"}}},
        {"TLS, node", {with(Role::kNode, "n1"), "", {worker, fetch, "/muster.v1.Enrol/Renew"}}},
        {"TLS, node with the token",
         {with(Role::kNode, "n2"), token_, {worker, fetch, "/muster.v1.Enrol/Renew"}}},
        {"TLS, scraper", {with(Role::kScraper, "prometheus"), "", {}}},
        {"TLS, coordinator", {with(Role::kCoordinator, "other"), "", {}}},
        {"TLS, expired",
         {OpenWhateverItIs(Door(), ca, ours_.MakeExpired(Role::kAdmin, "late")), "", {}}},
        {"TLS, another authority",
         {OpenWhateverItIs(Door(), ca, theirs_.Make(Role::kAdmin, "eve")), "", {}}},
        {"TLS, revoked admin", {with(Role::kAdmin, "former"), "", {}}},
        {"TLS, revoked node", {with(Role::kNode, "stolen"), "", {}}},
    };
  }

  std::string Get(const std::string& path, const std::string& credentials_dir,
                  bool with_certificate = true) {
    const HostPort address = SplitAddress(server_->endpoint().http_tls);
    return HttpsGet(address.host, address.port, path,
                    {.credentials_dir = credentials_dir, .with_certificate = with_certificate});
  }

  ClusterCredentials theirs_;
  const std::string admin_ = ours_.Make(Role::kAdmin, "someone");
};

TEST_F(AccessTest, EveryMethodAcceptsOnlyTheRolesOfTheTable) {
  RevokeNow(Role::kAdmin, "former");
  RevokeNow(Role::kNode, "stolen");
  StartTlsServer();
  const std::vector<std::string> methods = AllMethods();
  ASSERT_GT(methods.size(), 15u);
  for (const auto& [kind, credential] : EveryKind()) {
    for (const std::string& method : methods) {
      const std::string service = method.substr(0, method.rfind('/') + 1);
      const bool expected =
          credential.services.contains(service) || credential.services.contains(method);
      const grpc::Status status = CallWithNothing(credential.channel, method, credential.token);
      EXPECT_EQ(!IsDenied(status), expected)
          << kind << " calls " << method << ": " << status.error_code() << " "
          << status.error_message();
      // A refusal is one of the door, and not of a service that has looked at the message.
      EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << kind << " " << method;
    }
  }
}

TEST_F(AccessTest, EveryMethodIsInTheTable) {
  const auto known = KnownMethods();
  for (const std::string& method : AllMethods())
    EXPECT_NE(std::find(known.begin(), known.end(), method), known.end())
        << method << " is not in coordinator/service/authorization.cc: say who may call it";
}

// The users' authority may sign for users alone, whatever a thief of its key puts into
// certificates.
TEST_F(AccessTest, ACertificateOfALoginSpeaksForAUserAndForNobodyElse) {
  const std::string users = ours_.security_dir() + "/users";
  const std::int64_t now_ms = SystemClock().UnixMillis();
  ASSERT_TRUE(UserAuthority::Ensure(ours_.authority(), users, now_ms).ok());
  StartTlsServer();
  const std::string ca = ours_.authority().certificate_pem();
  const auto ask = [&](Role role) {
    const IssuedCertificate forged = ForgeForTest(users, {role, "eve", ours_.cluster()}, now_ms);
    return CallWithNothing(OpenWhateverItIs(Door(), ca, forged.key_pem, forged.certificate_pem),
                           "/muster.v1.Client/Version", "");
  };
  for (const Role role : kRoles) {
    const grpc::Status status = ask(role);
    EXPECT_EQ(status.ok(), role == Role::kUser) << RoleWord(role) << status.error_message();
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr("not one of a Muster authority"));
  }
  EXPECT_TRUE(CallWithNothing(Channel(admin_), "/muster.v1.Client/Version", "").ok());
}

TEST_F(AccessTest, AnUnknownMethodIsDeniedAtTheListener) {
  StartTlsServer();
  const grpc::Status status =
      CallWithNothing(Channel(ours_.Make(Role::kAdmin, "ann")), "/muster.v1.Client/Format", "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(AccessTest, ACertificateThatExpiresUnderItsConnectionIsRefusedFromThenOn) {
  StartTlsServer();
  const auto channel = Channel(ours_.Make(Role::kAdmin, "brief", 1min, 56s));
  const auto ask = [&] { return CallWithNothing(channel, "/muster.v1.Client/Version", ""); };
  ASSERT_TRUE(ask().ok());
  grpc::Status status;
  EXPECT_TRUE(Eventually([&] { return !(status = ask()).ok(); }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("has expired"));
}

TEST_F(AccessTest, PagesAreForScrapersAndAdmins) {
  RevokeNow(Role::kScraper, "former");
  StartTlsServer();
  const std::string scraper = ours_.Make(Role::kScraper, "prometheus");
  EXPECT_THAT(Get("/metrics", scraper), HasSubstr("muster_certificate_expiry_timestamp_seconds"));
  EXPECT_THAT(
      Get("/sd", scraper),
      HasSubstr(R"({"labels":{"__scheme__":"https","cluster":"lab","component":"coordinator"},)"
                R"("targets":[")" +
                server_->endpoint().http_tls));
  EXPECT_THAT(Get("/healthz", ours_.Make(Role::kAdmin, "ann")), HasSubstr("ok"));
  for (const std::string& dir :
       {ours_.Make(Role::kNode, "n1"), ours_.Make(Role::kScraper, "former")})
    EXPECT_THAT(Get("/metrics", dir), HasSubstr("403 Forbidden"));
  for (const char* path : {"/metrics", "/sd", "/healthz", "/api/v1/events", "/api/v1/log"})
    EXPECT_THAT(Get(path, scraper, /*with_certificate=*/false), HasSubstr("403 Forbidden")) << path;
  for (const char* path : {"/", "/jobs/any", "/assets/page.js", "/auth/session"})
    EXPECT_THAT(Get(path, scraper, /*with_certificate=*/false), HasSubstr("200 OK")) << path;
  // Their handshakes fail.
  EXPECT_EQ(Get("/metrics", ours_.MakeExpired(Role::kScraper, "late")), "");
  EXPECT_EQ(Get("/metrics", theirs_.Make(Role::kScraper, "eve")), "");
  // On loopback in plain text nothing has changed.
  EXPECT_THAT(HttpGet(server_->endpoint().http, "/healthz"), HasSubstr("200 OK"));
}

TEST_F(AccessTest, TheStatusPageIsForAdminsOverTlsAndForItsKeyOnLoopback) {
  StartTlsServer();
  EXPECT_THAT(Get("/jobs/any", admin_), HasSubstr("text/html"));
  // With the certificate it needs no key.
  EXPECT_THAT(Get("/api/v1/events?job=nobody", admin_), HasSubstr("404 Not Found"));
  for (const Role role : {Role::kScraper, Role::kNode, Role::kCoordinator}) {
    const std::string other = ours_.Make(role, "other");
    for (const char* path : {"/api/v1/events", "/api/v1/log"})
      EXPECT_THAT(Get(path, other), HasSubstr("403 Forbidden")) << path;
  }
  const Endpoint& endpoint = server_->endpoint();
  EXPECT_EQ(endpoint.page_key.size(), 64u);
  EXPECT_EQ(*ReadEndpoint(ClusterPaths{dir_}.Endpoint()), endpoint);
  EXPECT_THAT(HttpGet(endpoint.http, "/jobs/any"), HasSubstr("200 OK"));
  for (const char* path : {"/api/v1/events", "/api/v1/log?job=any"})
    EXPECT_THAT(HttpGet(endpoint.http, path), HasSubstr("403 Forbidden")) << path;
}

TEST_F(AccessTest, WhoWasRevokedIsRefusedAlsoWhereTheAuthoritysKeyIsOnAnotherMachine) {
  const std::string former = ours_.Make(Role::kAdmin, "former");
  RevokeNow(Role::kAdmin, "former");
  std::filesystem::remove(ours_.security_dir() + "/ca.key");
  StartTlsServer();
  const auto ask = [&](const std::string& dir) {
    return CallWithNothing(Channel(dir), "/muster.v1.Client/Version", "").error_code();
  };
  EXPECT_EQ(ask(former), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask(admin_), grpc::StatusCode::OK);
}

TEST_F(AccessTest, RevocationsCountThatCameWithCredentialsAndThoseOfTheCluster) {
  const std::string dir = ours_.Make(Role::kCoordinator, "elsewhere");
  RevokeNow(Role::kScraper, "here");
  ASSERT_TRUE(Revoke(dir + "/revoked.json",
                     {.identity = IdentityUri({Role::kScraper, "there", ours_.cluster()}),
                      .revoked_ms = SystemClock().UnixMillis()})
                  .ok());
  ServerOptions options = Options();
  options.tls_http = "127.0.0.1:0";
  options.tls = dir;
  StartServer(std::move(options));
  for (const char* name : {"here", "there"})
    EXPECT_THAT(Get("/metrics", ours_.Make(Role::kScraper, name)), HasSubstr("was revoked"))
        << name;
  EXPECT_THAT(Get("/metrics", admin_), HasSubstr("200 OK"));
}

TEST_F(AccessTest, OutsidePortsNeedCredentialsAndAddressesThatTheyCanHave) {
  std::filesystem::remove_all(ours_.security_dir());
  ServerOptions options = Options();
  options.tls_listen = "0.0.0.0:0";
  const Status none = Server::Start(options).status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("muster init"));
  options.tls_listen = "example:1";
  EXPECT_EQ(Server::Start(options).status().code(), StatusCode::kInvalidArgument);
  options = Options();
  options.listen = "0.0.0.0:0";
  EXPECT_EQ(Server::Start(options).status().code(), StatusCode::kPermissionDenied);
  options = Options();
  options.http = "0.0.0.0:0";
  EXPECT_EQ(Server::Start(options).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(AccessTest, TheCoordinatorRenewsItsOwnCertificateBeforeItListens) {
  const std::string dir = ours_.security_dir() + "/coordinator";
  ours_.Write(dir, Role::kCoordinator, "coordinator", 1h, 50min);
  const std::string before = LoadCredentials(dir)->serial;
  StartTlsServer();
  EXPECT_NE(LoadCredentials(dir)->serial, before);
  EXPECT_FALSE(IsDenied(
      CallWithNothing(Channel(ours_.Make(Role::kAdmin, "ann")), "/muster.v1.Client/Version", "")));
}

TEST_F(AccessTest, CredentialsThatWereLeftHalfReplacedAreMadeWholeBeforeAnybodySeesThem) {
  const std::string dir = ours_.security_dir() + "/coordinator";
  // The key of another certificate beside this one, and the record of the one that counts.
  const auto whole = LoadCredentials(ours_.Make(Role::kCoordinator, "next"));
  ASSERT_TRUE(whole.ok());
  const nlohmann::json record = {
      {"ca", whole->ca_pem}, {"cert", whole->cert_pem}, {"key", whole->key_pem}};
  ASSERT_TRUE(WriteFileAtomically(dir + "/replacement.json", record.dump(), 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(dir + "/cert.pem", whole->cert_pem).ok());
  StartTlsServer();
  EXPECT_FALSE(std::filesystem::exists(dir + "/replacement.json"));
  EXPECT_EQ(*ReadFile(dir + "/key.pem"), whole->key_pem);
  const auto channel = Channel(ours_.Make(Role::kAdmin, "ann"));
  EXPECT_TRUE(CallWithNothing(channel, "/muster.v1.Client/Version", "").ok());
}

}  // namespace
}  // namespace muster
