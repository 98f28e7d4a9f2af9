// HttpServer with TLS; what it does without is in http_server_test.cc.
#include "common/telemetry/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <thread>

#include "common/security/testing/site_authority.h"
#include "common/telemetry/tls_context.h"
#include "tests/support/cluster_credentials.h"
#include "tests/support/eventually.h"
#include "tests/support/https_get.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ssl_method = boost::asio::ssl::context::method;

class HttpsServerTest : public testing::Test {
 protected:
  HttpsServerTest() {
    auto server = HttpServer::ListenTls(
        loop_, "127.0.0.1", 0,
        {server_dir_, [](const std::string& path, const CertificateInfo* peer) {
           return path == "/open" || peer->identity.role == Role::kScraper
                      ? OkStatus()
                      : PermissionDenied("not for you, " + peer->identity.name);
         }});
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    for (const char* path : {"/metrics", "/open"})
      server_->Handle(
          path, [](const std::string& query) { return HttpResponse{.body = "hello " + query}; });
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~HttpsServerTest() override {
    loop_.Stop();
    thread_.join();
  }

  std::string Get(const std::string& path, HttpsOptions options) const {
    return HttpsGet("127.0.0.1", server_->port(), path, options);
  }

  ClusterCredentials ours_;
  const std::string server_dir_ = ours_.Make(Role::kNode, "n1");
  const std::string scraper_ = ours_.Make(Role::kScraper, "prometheus");
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpsServerTest, AnswersTheClientsThatTheOwnerLetsIn) {
  const HttpsOptions scraper{.credentials_dir = scraper_, .server = kNodeServerName};
  EXPECT_THAT(Get("/metrics?q", scraper), HasSubstr("hello q"));
  const HttpsOptions node{.credentials_dir = ours_.Make(Role::kNode, "n2"),
                          .server = kNodeServerName};
  EXPECT_THAT(Get("/open", node), HasSubstr("200 OK"));
  const std::string refused = Get("/metrics", node);
  EXPECT_THAT(refused, HasSubstr("403 Forbidden"));
  EXPECT_THAT(refused, HasSubstr("not for you, n2"));
  // The answer does not show whether a path exists either.
  EXPECT_THAT(Get("/nothing", node), HasSubstr("403 Forbidden"));
  EXPECT_THAT(Get("/nothing", scraper), HasSubstr("404"));
}

TEST_F(HttpsServerTest, ClosesConnectionsWithoutAValidCertificate) {
  const std::string name = kNodeServerName;
  EXPECT_EQ(Get("/open", {.credentials_dir = scraper_, .with_certificate = false, .server = name}),
            "");
  const std::string late = ours_.MakeExpired(Role::kScraper, "late");
  EXPECT_EQ(Get("/open", {.credentials_dir = late, .server = name}), "");
  ClusterCredentials theirs;
  EXPECT_EQ(Get("/open", {.credentials_dir = theirs.Make(Role::kScraper, "eve"), .server = name}),
            "");
}

TEST_F(HttpsServerTest, RefusesACertificateThatExpiresUnderItsConnection) {
  namespace http = boost::beast::http;
  HttpsConnection connection("127.0.0.1", server_->port(),
                             {.credentials_dir = ours_.Make(Role::kScraper, "brief", 1min, 57s),
                              .server = kNodeServerName});
  ASSERT_TRUE(connection.stream);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  const auto ask = [&] {
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: muster\r\n\r\n";
    boost::asio::write(*connection.stream, boost::asio::buffer(request));
    response = {};
    http::read(*connection.stream, buffer, response);
    return response.result_int();
  };
  ASSERT_EQ(ask(), 200u);
  EXPECT_TRUE(Eventually([&] { return ask() == 403; }));
  EXPECT_THAT(response.body(), HasSubstr("scraper/brief has expired"));
}

TEST_F(HttpsServerTest, HangsUpAfterTheLastAnswerThoughTheClientStays) {
  const auto stays_open = [&](const std::string& request) {
    HttpsConnection connection("127.0.0.1", server_->port(),
                               {.credentials_dir = scraper_, .server = kNodeServerName});
    boost::asio::write(*connection.stream, boost::asio::buffer(request));
    std::string answer;
    boost::system::error_code error;
    boost::asio::read(*connection.stream, boost::asio::dynamic_buffer(answer), error);
    // The end was said in TLS, and not cut off.
    EXPECT_EQ(error, boost::asio::error::eof) << answer;
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
    // The client says no goodbye. A server that waits for one gives up after 10 s.
    const int fd = connection.stream->lowest_layer().native_handle();
    const timeval timeout{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    char byte = 0;
    return ::recv(fd, &byte, 1, 0) != 0;
  };
  EXPECT_FALSE(stays_open("GET /metrics HTTP/1.1\r\nHost: muster\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(stays_open("DELETE /metrics HTTP/1.1\r\nHost: muster\r\n\r\n"));
}

// Where people sign in: a stranger may have what is open, a session what it stands for.
class SignedInTest : public testing::Test {
 protected:
  SignedInTest() {
    auto server = HttpServer::ListenTls(
        loop_, "127.0.0.1", 0,
        {.credentials_dir = ours_.Make(Role::kNode, "n1"),
         .authorize =
             [](const std::string& path, const CertificateInfo* peer) {
               if (path == "/open" || (peer != nullptr && peer->identity.name == "ada"))
                 return OkStatus();
               return PermissionDenied("sign in");
             },
         .find_session = [this](std::string_view session) -> std::optional<CertificateInfo> {
           if (session != session_) return std::nullopt;
           return CertificateInfo{.identity = {Role::kUser, "ada", "lab"},
                                  .not_after_ms = SystemClock().UnixMillis() + left_ms_};
         }});
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    const auto who = [](const HttpRequest& request, const HttpResponder& reply) {
      const std::string name = request.peer ? request.peer->identity.name : "a stranger";
      reply({.body = name + " at " + request.host + " from " + request.address + " with " +
                     request.csrf,
             .cookies = {"a=1", "b=2"}});
    };
    for (const char* path : {"/open", "/closed"}) server_->HandleLater(path, who);
    server_->HandlePost("/closed", who);
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~SignedInTest() override {
    loop_.Stop();
    thread_.join();
  }

  std::string Ask(const std::string& line, const std::string& fields) {
    HttpsConnection connection("127.0.0.1", server_->port(),
                               {.credentials_dir = ours_.Make(Role::kScraper, "any"),
                                .with_certificate = false,
                                .server = kNodeServerName});
    if (!connection.stream) return "";
    const std::string request =
        line + " HTTP/1.1\r\nHost: muster:1\r\nConnection: close\r\n" + fields + "\r\n";
    boost::asio::write(*connection.stream, boost::asio::buffer(request));
    std::string answer;
    boost::system::error_code error;
    boost::asio::read(*connection.stream, boost::asio::dynamic_buffer(answer), error);
    return answer;
  }

  ClusterCredentials ours_;
  const std::string session_ = "0123";
  std::int64_t left_ms_ = 60'000;
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(SignedInTest, ASessionStandsForAPersonAndStrangersAreRefused) {
  const std::string cookie = "Cookie: x=1; __Host-muster-session=0123\r\n";
  EXPECT_THAT(Ask("GET /open", ""), HasSubstr("a stranger at muster:1 from ipv4:127.0.0.1:"));
  EXPECT_THAT(Ask("GET /closed", ""), HasSubstr("403 Forbidden"));
  EXPECT_THAT(Ask("GET /closed", "Cookie: __Host-muster-session=0124\r\n"),
              HasSubstr("403 Forbidden"));
  EXPECT_THAT(Ask("GET /closed", "Cookie: muster-session=0123\r\n"), HasSubstr("403 Forbidden"));
  const std::string ada = Ask("GET /closed", cookie);
  EXPECT_THAT(ada, HasSubstr("ada at muster:1"));
  EXPECT_THAT(ada, HasSubstr("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"));
  left_ms_ = -1;
  EXPECT_THAT(Ask("GET /closed", cookie), HasSubstr("has expired"));
}

TEST_F(SignedInTest, OnlyAPageOfThisServerPosts) {
  const std::string cookie = "Cookie: __Host-muster-session=0123\r\nX-CSRF-Token: t\r\n";
  EXPECT_THAT(Ask("POST /closed", cookie + "Origin: https://muster:1\r\n"), HasSubstr("with t"));
  for (const char* origin : {"", "Origin: null\r\n", "Origin: https://evil\r\n"})
    EXPECT_THAT(Ask("POST /closed", cookie + origin), HasSubstr("403 Forbidden")) << origin;
  EXPECT_THAT(Ask("POST /closed", "Origin: https://muster:1\r\n"), HasSubstr("403 Forbidden"));
  EXPECT_THAT(Ask("POST /open", "Origin: https://muster:1\r\n"), HasSubstr("405 "));
  EXPECT_THAT(Ask("POST /nothing", "Origin: https://muster:1\r\n"), HasSubstr("405 "));
}

// A port with the site's own certificate beside the cluster's.
class SiteNamesTest : public testing::Test {
 protected:
  SiteNamesTest() {
    auto server = HttpServer::ListenTls(
        loop_, "127.0.0.1", 0,
        {.credentials_dir = ours_.Make(Role::kCoordinator, "c"),
         .authorize =
             [](const std::string&, const CertificateInfo* peer) {
               return peer != nullptr ? OkStatus() : PermissionDenied("a stranger");
             },
         .find_session = [](std::string_view) { return std::nullopt; },
         .site = site_});
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    server_->HandleLater("/who", [](const HttpRequest& request, const HttpResponder& reply) {
      reply({.body = "hello " + request.peer->identity.name});
    });
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~SiteNamesTest() override {
    loop_.Stop();
    thread_.join();
  }

  std::string Browse(const std::string& name, bool with_certificate = false) const {
    return HttpsGet("127.0.0.1", server_->port(), "/who",
                    {.credentials_dir = scraper_,
                     .with_certificate = with_certificate,
                     .server = name,
                     .asks_by_name = true,
                     .authority_pem = authority_.root_pem()});
  }
  std::string Scrape(bool asks_by_name, const std::string& name = kCoordinatorServerName) const {
    return HttpsGet("127.0.0.1", server_->port(), "/who",
                    {.credentials_dir = scraper_, .server = name, .asks_by_name = asks_by_name});
  }

  ClusterCredentials ours_;
  const std::string scraper_ = ours_.Make(Role::kScraper, "prometheus");
  SiteAuthorityForTest authority_;
  const SiteCertificateFiles site_ = authority_.Write(
      "tls", {.names = "DNS:muster.example.org,DNS:*.lab.example.org,DNS:coordinator.muster"});
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(SiteNamesTest, TheNameThatAClientAsksForDecidesWhichCertificateItIsShown) {
  EXPECT_THAT(Browse("muster.example.org"), HasSubstr("a stranger"));
  EXPECT_THAT(Browse("MUSTER.example.org"), HasSubstr("a stranger"));
  EXPECT_THAT(Browse("page.lab.example.org"), HasSubstr("a stranger"));
  EXPECT_EQ(Browse("other.example.org"), "");
  EXPECT_EQ(Browse("coordinator.muster"), "") << "the cluster's own, whatever the site's names";
  EXPECT_THAT(Scrape(true), HasSubstr("hello prometheus"));
  EXPECT_THAT(Scrape(false), HasSubstr("hello prometheus"));
  EXPECT_EQ(Scrape(true, "muster.example.org"), "");
}

TEST_F(SiteNamesTest, CertificatesOfTheClusterAreAcceptedUnderTheSitesNameToo) {
  EXPECT_THAT(Browse("muster.example.org", true), HasSubstr("hello prometheus"));
  ClusterCredentials theirs;
  EXPECT_EQ(HttpsGet("127.0.0.1", server_->port(), "/who",
                     {.credentials_dir = theirs.Make(Role::kScraper, "eve"),
                      .server = "muster.example.org",
                      .asks_by_name = true,
                      .authority_pem = authority_.root_pem()}),
            "");
}

TEST_F(SiteNamesTest, ShowsARenewedCertificateOfTheSiteWithoutARestart) {
  EXPECT_EQ(Browse("new.example.org"), "");
  authority_.Write("tls", {.names = "DNS:new.example.org"});
  EXPECT_TRUE(Eventually([&] { return Browse("new.example.org") != ""; }));
  EXPECT_EQ(Browse("muster.example.org"), "");
  EXPECT_THAT(Scrape(true), HasSubstr("hello prometheus"));
}

TEST_F(SiteNamesTest, ABadRenewalLeavesTheOldCertificateInUseAndHoldsUpNoOtherRenewal) {
  ASSERT_TRUE(WriteFileAtomically(site_.chain, "half", 0644).ok());
  const std::string cluster = ours_.Make(Role::kCoordinator, "c", 1h, 30min);
  const auto serial = [&] {
    HttpsConnection connection("127.0.0.1", server_->port(), {.credentials_dir = scraper_});
    const auto shown = connection.stream ? PeerCertificate(connection.stream->native_handle())
                                         : Result<std::optional<CertificateInfo>>(std::nullopt);
    return shown.ok() && *shown ? (*shown)->serial : "";
  };
  const std::string renewed = LoadCredentials(cluster)->serial;
  EXPECT_TRUE(Eventually([&] { return serial() == renewed; }));
  EXPECT_THAT(Browse("muster.example.org"), HasSubstr("a stranger"));
}

TEST_F(HttpsServerTest, IsBelievedOnlyByItsRolesName) {
  EXPECT_EQ(Get("/open", {.credentials_dir = scraper_, .server = kCoordinatorServerName}), "");
}

TEST_F(HttpsServerTest, SpeaksVersion13Only) {
  HttpsOptions options{.credentials_dir = scraper_, .server = kNodeServerName};
  options.method = ssl_method::tlsv12_client;
  EXPECT_EQ(Get("/open", options), "");
  options.method = ssl_method::tlsv13_client;
  EXPECT_THAT(Get("/open", options), HasSubstr("200 OK"));
}

TEST_F(HttpsServerTest, ShowsARenewedCertificateWithoutARestart) {
  // The name is the only thing that a client can see from here: another role has another one.
  ours_.Write(server_dir_, Role::kCoordinator, "c");
  EXPECT_TRUE(Eventually([&] {
    return Get("/open", {.credentials_dir = scraper_, .server = kCoordinatorServerName}) != "";
  }));
}

TEST_F(HttpsServerTest, DoesNotStartWithCredentialsThatNoClientWouldAccept) {
  EventLoop loop;
  const auto listen = [&](const std::string& dir) {
    return HttpServer::ListenTls(loop, "127.0.0.1", 0, {dir, {}}).status().code();
  };
  EXPECT_EQ(listen(server_dir_ + "-nowhere"), StatusCode::kNotFound);
  EXPECT_EQ(listen(ours_.MakeExpired(Role::kNode, "late")), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace muster
