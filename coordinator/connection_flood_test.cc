// Crowds at the doors for calls and pages: many who connect and do not go on, tried at a real
// coordinator.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <memory>

#include "coordinator/service/probation.h"
#include "tests/support/https_get.h"
#include "tests/support/tls_server_test.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int kCrowd = 200;
// As a handshake's own deadline: a client accepted later than this was shut out by the crowd.
constexpr Duration kShutOut = 10s;

// The first bytes of a client that sends no more.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  BIO* sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);
  SSL_set_connect_state(ssl.get());
  EXPECT_LT(SSL_do_handshake(ssl.get()), 0) << "nobody has answered";
  char* data = nullptr;
  const long size = BIO_get_mem_data(sent, &data);
  return {data, static_cast<std::size_t>(size)};
}

class ConnectionFloodTest : public TlsServerTest {
 protected:
  ConnectionFloodTest() { StartTlsServer(); }

  // Connected once this returns, each having sent `words`.
  std::vector<UniqueFd> Crowd(const std::string& words) const { return CrowdAt(port(), words); }
  static std::vector<UniqueFd> CrowdAt(std::uint16_t port, const std::string& words,
                                       int size = kCrowd) {
    std::vector<UniqueFd> crowd;
    for (int i = 0; i < size; ++i) {
      UniqueFd& fd = crowd.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      // Some have been hung up on by now.
      (void)::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
    }
    return crowd;
  }
  std::uint16_t port() const { return SplitAddress(server_->endpoint().http_tls).port; }

  Duration TimeOf(const std::function<void()>& function) {
    const TimePoint begin = SystemClock().Now();
    function();
    return SystemClock().Now() - begin;
  }
  Duration Scrape() {
    return TimeOf([&] {
      EXPECT_THAT(HttpsGet("127.0.0.1", port(), "/metrics", {.credentials_dir = scraper_}),
                  HasSubstr("200 OK"));
    });
  }
  Duration AskVersion(v1::Client::Stub& stub) {
    return TimeOf([&] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kLimit);
      v1::VersionResponse response;
      EXPECT_TRUE(stub.Version(&context, {}, &response).ok());
    });
  }

  // The duration depends on the load of the machine; a refused client does not.
  static void Note(const std::string& what, Duration took) {
    EXPECT_LT(took, kShutOut) << what;
    RecordProperty(what, std::to_string(ToSeconds(took) * 1000) + " ms");
  }

  const std::string scraper_ = ours_.Make(Role::kScraper, "prometheus");
};

TEST_F(ConnectionFloodTest, SilentConnectionsDelayNoOtherClient) {
  const auto admin = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "ann")));
  AskVersion(*admin);
  const std::vector<UniqueFd> crowd = Crowd("");
  Note("version", AskVersion(*admin));
  Note("scrape", Scrape());
  Note("version after", AskVersion(*admin));
}

// More than are on probation at once.
TEST_F(ConnectionFloodTest, ACrowdAtThePortForCallsEndsNoAdmittedConnectionAndShutsNobodyOut) {
  const auto admitted = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "ann")));
  AskVersion(*admitted);
  for (const std::string& words : {std::string(), ClientHello()}) {
    const std::vector<UniqueFd> crowd =
        CrowdAt(SplitAddress(Door()).port, words, 2 * ProbationLimits().connections);
    Note("version", AskVersion(*admitted));
    const auto other = v1::Client::NewStub(Channel(ours_.Make(Role::kAdmin, "bob")));
    Note("version of another", AskVersion(*other));
  }
}

TEST_F(ConnectionFloodTest, UnfinishedHandshakesShutNoOtherClientOut) {
  const std::vector<UniqueFd> crowd = Crowd(ClientHello());
  Note("scrape", Scrape());
}

TEST_F(ConnectionFloodTest, AConnectionThatIsThereIsAnsweredInACrowd) {
  HttpsConnection scraper("127.0.0.1", port(), {.credentials_dir = scraper_});
  ASSERT_TRUE(scraper.stream);
  EXPECT_THAT(HttpsHead(scraper, "/metrics"), HasSubstr("200 OK"));
  const std::vector<UniqueFd> crowd = Crowd(ClientHello());
  Note("head", TimeOf([&] { EXPECT_THAT(HttpsHead(scraper, "/metrics"), HasSubstr("200 OK")); }));
}

}  // namespace
}  // namespace muster
