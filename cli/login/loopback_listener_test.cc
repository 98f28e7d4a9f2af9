#include "cli/login/loopback_listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LoopbackListenerTest : public ::testing::Test {
 protected:
  // What a client that sends this is answered.
  std::string Send(const std::string& request) const {
    const std::string& uri = listener_->redirect_uri();
    const std::size_t colon = uri.rfind(':');
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(uri.substr(colon + 1))));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char part[1024];
    for (ssize_t got = 0; (got = ::recv(fd.get(), part, sizeof part, 0)) > 0;)
      answer.append(part, static_cast<std::size_t>(got));
    return answer;
  }
  std::string Get(const std::string& path) const {
    return Send("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  }

  Interrupt interrupt_;
  const Result<LoopbackListener> listener_ = LoopbackListener::Open();
  const CodeLogin login_{.state = "xyz"};
};

TEST_F(LoopbackListenerTest, WaitsForTheAnswerToItsRequest) {
  ASSERT_TRUE(listener_.ok()) << listener_.status().ToString();
  EXPECT_THAT(listener_->redirect_uri(), StartsWith("http://127.0.0.1:"));
  std::string code;
  std::thread waiting(
      [&] { code = listener_->AwaitCode(login_, "https://a", 60s, interrupt_).value(); });
  EXPECT_THAT(Get("/favicon.ico"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/callback?code=stolen&state=guessed"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Send("GET /" + std::string(9000, 'a') + "\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/callback?code=mine&state=xyz"), HasSubstr("goes on in the terminal"));
  waiting.join();
  EXPECT_EQ(code, "mine");
}

TEST_F(LoopbackListenerTest, GivesUpInTime) {
  EXPECT_EQ(listener_->AwaitCode(login_, "https://a", 10ms, interrupt_).status().code(),
            StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace muster
