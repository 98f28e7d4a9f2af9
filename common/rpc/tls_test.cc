#include "common/rpc/tls.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <vector>

#include "common/base/files.h"
#include "common/rpc/token.h"
#include "muster/v1/client_api.grpc.pb.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/eventually.h"
#include "tests/support/grpc_end.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

// Lets every client in and notes its identity.
class Guestbook : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto pem = context->FindPropertyValues("x509_pem_cert");
    const std::lock_guard lock(mutex_);
    const auto path = metadata.find(":path");
    methods_.push_back(
        path == metadata.end() ? "" : std::string(path->second.begin(), path->second.end()));
    peers_.push_back(pem.empty() ? "" : std::string(pem[0].begin(), pem[0].end()));
    return grpc::Status::OK;
  }
  std::vector<std::string> peers() const {
    const std::lock_guard lock(mutex_);
    return peers_;
  }
  std::vector<std::string> methods() const {
    const std::lock_guard lock(mutex_);
    return methods_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> peers_, methods_;
};

// Version answers; Watch says one thing when asked to, and lives until it is cancelled.
class Service : public v1::Client::Service {
 public:
  grpc::Status Version(grpc::ServerContext*, const v1::VersionRequest*,
                       v1::VersionResponse* response) override {
    response->set_version("1");
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest*,
                     grpc::ServerWriter<v1::WatchUpdate>* writer) override {
    std::unique_lock lock(mutex_);
    while (!context->IsCancelled()) {
      changed_.wait_for(lock, 10ms, [this] { return wanted_ > 0; });
      for (; wanted_ > 0; --wanted_) writer->Write(v1::WatchUpdate());
    }
    return grpc::Status::OK;
  }
  void WriteOne() {
    const std::lock_guard lock(mutex_);
    ++wanted_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int wanted_ = 0;
};

class TlsTest : public testing::Test {
 protected:
  void Serve(const std::string& dir, ClientCertificate client = ClientCertificate::kRequired) {
    auto credentials = TlsServerCredentials(dir, guestbook_, client);
    ASSERT_TRUE(credentials.ok()) << credentials.status().ToString();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_GT(port_, 0);
  }
  ~TlsTest() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(port_); }

  static grpc::Status AskVersion(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 10s);
    v1::VersionResponse response;
    return v1::Client::NewStub(channel)->Version(&context, {}, &response);
  }
  // With credentials whatever they are, expired ones too.
  grpc::Status AskWith(const std::string& dir) {
    const auto channel = OpenTlsChannel(Address(), dir);
    return channel.ok()
               ? AskVersion(*channel)
               : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, channel.status().message());
  }
  // The serial of the certificate that the server shows now.
  std::string ServerSerial() {
    namespace ssl = boost::asio::ssl;
    boost::asio::io_context io;
    ssl::context context(ssl::context::tlsv13_client);
    ssl::stream<boost::asio::ip::tcp::socket> stream(io, context);
    stream.lowest_layer().connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port_)});
    boost::system::error_code error;
    stream.handshake(ssl::stream_base::client, error);
    if (error) return error.message();
    X509* certificate = SSL_get1_peer_certificate(stream.native_handle());
    BIO* memory = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(memory, certificate);
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory, &data);
    const auto info = ReadCertificate(std::string(data, static_cast<std::size_t>(size)));
    BIO_free(memory);
    X509_free(certificate);
    return info.ok() ? info->serial : info.status().message();
  }
  bool Handshakes(boost::asio::ssl::context::method method) {
    boost::asio::io_context io;
    boost::asio::ssl::context context(method);
    boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream(io, context);
    stream.lowest_layer().connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port_)});
    boost::system::error_code error;
    stream.handshake(boost::asio::ssl::stream_base::client, error);
    return !error;
  }

  ClusterCredentials ours_;
  const std::shared_ptr<Guestbook> guestbook_ = std::make_shared<Guestbook>();
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TlsTest, BothSidesShowACertificateAndEachCallIsCheckedBeforeItsMessage) {
  Serve(ours_.Make(Role::kCoordinator, "c"));
  const grpc::Status status = AskWith(ours_.Make(Role::kAdmin, "ann"));
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(guestbook_->peers().size(), 1u);
  const auto peer = ReadCertificate(guestbook_->peers()[0]);
  ASSERT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_EQ(peer->identity, (Identity{Role::kAdmin, "ann", "lab"}));
  EXPECT_EQ(guestbook_->methods()[0], "/muster.v1.Client/Version");
}

TEST_F(TlsTest, AClientWithoutACertificateGetsNoFurtherThanTheHandshake) {
  Serve(ours_.Make(Role::kCoordinator, "c"));
  const auto channel = OpenTlsChannelToJoin(Address(), ours_.authority().certificate_pem());
  EXPECT_EQ(AskVersion(channel).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(guestbook_->peers().empty());
}

TEST_F(TlsTest, WithoutARequestForACertificateAClientConnectsWithoutAnIdentity) {
  Serve(ours_.Make(Role::kCoordinator, "c"), ClientCertificate::kNone);
  const auto channel = OpenTlsChannelToJoin(Address(), ours_.authority().certificate_pem());
  ASSERT_TRUE(AskVersion(channel).ok());
  EXPECT_EQ(guestbook_->peers(), std::vector<std::string>{""});
}

TEST_F(TlsTest, ACertificateOfAnotherAuthorityEndsTheHandshakeOnEitherSide) {
  Serve(ours_.Make(Role::kCoordinator, "c"));
  // Another authority of the same name: only the signature differs.
  ClusterCredentials theirs;
  EXPECT_EQ(AskWith(theirs.Make(Role::kAdmin, "eve")).error_code(), grpc::StatusCode::UNAVAILABLE);
  // A client that believes us, with their certificate.
  const std::string mixed = theirs.Make(Role::kAdmin, "mallory");
  const auto loaded = LoadCredentials(mixed);
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(AskVersion(OpenTlsChannelToJoin(Address(), loaded->ca_pem)).ok());
  EXPECT_TRUE(guestbook_->peers().empty());
}

TEST_F(TlsTest, AServerIsBelievedOnlyAsACoordinator) {
  EXPECT_EQ(TlsServerCredentials(ours_.Make(Role::kNode, "n1"), guestbook_).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(TlsServerCredentials(ours_.MakeExpired(Role::kCoordinator, "old"), guestbook_)
                .status()
                .code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(TlsTest, AnExpiredCertificateIsNotEvenShown) {
  Serve(ours_.Make(Role::kCoordinator, "c"));
  const grpc::Status status = AskWith(ours_.MakeExpired(Role::kAdmin, "late"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(guestbook_->peers().empty());
}

TEST_F(TlsTest, OnlyVersion13IsSpoken) {
  Serve(ours_.Make(Role::kCoordinator, "c"));
  EXPECT_TRUE(Handshakes(boost::asio::ssl::context::tlsv13_client));
  EXPECT_FALSE(Handshakes(boost::asio::ssl::context::tlsv12_client));
}

TEST_F(TlsTest, ARenewalReachesNewConnectionsAndEndsNoRunningStream) {
  const std::string server_dir = ours_.Make(Role::kCoordinator, "c");
  const std::string client_dir = ours_.Make(Role::kAdmin, "ann");
  Serve(server_dir);
  const auto channel = OpenTlsChannel(Address(), client_dir);
  ASSERT_TRUE(channel.ok());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  const auto watch = v1::Client::NewStub(*channel)->Watch(&context, {});
  v1::WatchUpdate update;
  service_.WriteOne();
  ASSERT_TRUE(watch->Read(&update));

  const std::string before = ServerSerial();
  ASSERT_EQ(before, LoadCredentials(server_dir)->serial);
  ours_.Write(server_dir, Role::kCoordinator, "c");
  ours_.Write(client_dir, Role::kAdmin, "ann");
  const auto renewed = LoadCredentials(server_dir);
  const std::string after = renewed->serial;
  ASSERT_NE(after, before);
  ASSERT_TRUE(KeepServingFile(server_dir, *renewed).ok());
  EXPECT_TRUE(Eventually([&] { return ServerSerial() == after; }));
  ASSERT_TRUE(AskWith(client_dir).ok());
  EXPECT_EQ(ReadCertificate(guestbook_->peers().back())->serial,
            LoadCredentials(client_dir)->serial);

  service_.WriteOne();
  EXPECT_TRUE(watch->Read(&update)) << "the stream was ended by the renewal";
  context.TryCancel();
  (void)watch->Finish();
}

TEST_F(TlsTest, ShowsNoCertificateWithAnothersKeyThoughTheirWriterWasKilledInBetween) {
  const std::string dir = ours_.Make(Role::kCoordinator, "c");
  Serve(dir);
  const std::string before = ServerSerial();
  ASSERT_EQ(before, LoadCredentials(dir)->serial);
  // The next certificate is there, and its key is not yet.
  const std::string next = ours_.Make(Role::kCoordinator, "next");
  std::filesystem::copy_file(next + "/cert.pem", dir + "/cert.pem",
                             std::filesystem::copy_options::overwrite_existing);
  std::set<std::string> shown;
  ASSERT_FALSE(
      Eventually([&] { return shown.insert(ServerSerial()).second && shown.size() > 1; }, 1500ms));
  EXPECT_EQ(shown, std::set<std::string>{before});
  // And now it is.
  const auto whole = LoadCredentials(next);
  ASSERT_TRUE(whole.ok());
  ASSERT_TRUE(KeepServingFile(dir, *whole).ok());
  EXPECT_TRUE(
      Eventually([&] { return shown.insert(ServerSerial()).first->compare(whole->serial) == 0; }));
  EXPECT_EQ(shown, (std::set<std::string>{before, whole->serial}));
}

TEST_F(TlsTest, AServerWhoseDirectoryCannotBeWrittenFollowsTheFilesThemselves) {
  const std::string dir = ours_.Make(Role::kCoordinator, "c");
  // In the way of the file, also for root.
  std::filesystem::create_directory(dir + "/serving.pem");
  Serve(dir);
  EXPECT_EQ(ServerSerial(), LoadCredentials(dir)->serial);
  ours_.Write(dir, Role::kCoordinator, "c");
  const std::string after = LoadCredentials(dir)->serial;
  EXPECT_TRUE(Eventually([&] { return ServerSerial() == after; }));
}

TEST_F(TlsTest, AClientWithCredentialsSpeaksPlainTextOnLoopbackOnly) {
  const TempDirForTest dir;
  const std::string token = dir / "token";
  ASSERT_TRUE(LoadOrCreateToken(token).ok());
  const std::string credentials = ours_.Make(Role::kAdmin, "ann");
  const auto open = [&](const Endpoint& endpoint, const std::string& tls) {
    return OpenCoordinator(endpoint, tls, token);
  };
  EXPECT_EQ(open({.grpc = "127.0.0.1:1"}, credentials)->address, "127.0.0.1:1");
  EXPECT_FALSE(open({.grpc = "127.0.0.1:1"}, credentials)->token.empty());
  EXPECT_EQ(open({.grpc = "10.0.0.1:1"}, credentials).status().code(),
            StatusCode::kPermissionDenied);
  const Endpoint both{.grpc = "127.0.0.1:1", .grpc_tls = "127.0.0.1:2"};
  EXPECT_EQ(open(both, credentials)->address, "127.0.0.1:2");
  EXPECT_TRUE(open(both, credentials)->token.empty());
  EXPECT_EQ(open(both, "")->address, "127.0.0.1:1");
  EXPECT_EQ(open({.grpc_tls = "10.0.0.1:2"}, "").status().code(), StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace muster
