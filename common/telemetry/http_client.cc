#include "common/telemetry/http_client.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "common/telemetry/beast.h"

namespace muster {
namespace {

// The answer's text is of no interest.
constexpr std::size_t kMaxReplyBytes = 64 << 10;

bool IsPort(const std::string& text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string::npos && std::stoi(text) > 0 &&
         std::stoi(text) <= 65535;
}

// Owns itself through the handlers of its pending operation. One timer is over all of them.
class Post : public std::enable_shared_from_this<Post> {
 public:
  Post(EventLoop& loop, const HttpUrl& url, std::string body,
       std::function<void(const HttpReply&)> done)
      : url_(url),
        resolver_(loop.context()),
        stream_(loop.context()),
        timer_(loop.context()),
        done_(std::move(done)) {
    const bool is_ipv6 = url.host.find(':') != std::string::npos;
    const std::string host = is_ipv6 ? "[" + url.host + "]" : url.host;
    request_ = {http::verb::post, url.target, 11};
    request_.set(http::field::host, url.port == "80" ? host : host + ":" + url.port);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::user_agent, "muster");
    request_.set(http::field::connection, "close");
    request_.body() = std::move(body);
    request_.prepare_payload();
    parser_.body_limit(kMaxReplyBytes);
  }

  void Start(Duration limit) {
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this()](beast::error_code error) {
      if (!error) self->Finish({DeadlineExceeded(self->Where() + " did not answer in time"), 0});
    });
    resolver_.async_resolve(url_.host, url_.port,
                            [self = shared_from_this()](beast::error_code error,
                                                        const tcp::resolver::results_type& to) {
                              if (error) return self->Fail("look up", error);
                              self->Connect(to);
                            });
  }

 private:
  void Connect(const tcp::resolver::results_type& to) {
    stream_.async_connect(to, [self = shared_from_this()](beast::error_code error, const auto&) {
      if (error) return self->Fail("connect to", error);
      self->Write();
    });
  }

  void Write() {
    http::async_write(stream_, request_,
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        if (error) return self->Fail("send to", error);
                        self->Read();
                      });
  }

  // The status line is all that counts.
  void Read() {
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](beast::error_code error, std::size_t) {
          if (error) return self->Fail("read the reply of", error);
          self->Finish({OkStatus(), static_cast<int>(self->parser_.get().result_int())});
        });
  }

  std::string Where() const { return url_.host + ":" + url_.port; }
  void Fail(const std::string& what, const beast::error_code& error) {
    Finish({Unavailable("cannot " + what + " " + Where() + ": " + error.message()), 0});
  }

  void Finish(HttpReply reply) {
    if (!done_) return;
    timer_.cancel();
    resolver_.cancel();
    beast::error_code ignored;
    stream_.socket().close(ignored);
    std::exchange(done_, nullptr)(std::move(reply));
  }

  const HttpUrl url_;
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  asio::steady_timer timer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_{kMaxReplyBytes};
  std::function<void(const HttpReply&)> done_;
};

}  // namespace

Result<HttpUrl> ParseHttpUrl(const std::string& url) {
  const Status bad = InvalidArgument("'" + url + "' is no URL of the form http://HOST[:PORT]/PATH");
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return bad;
  // A line break or a blank would end up in the request's head.
  if (std::any_of(url.begin(), url.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    return bad;
  const std::size_t begin = kScheme.size();
  const std::size_t end = std::min(url.find_first_of("/?", begin), url.size());
  std::string authority = url.substr(begin, end - begin);
  HttpUrl out;
  out.target = url.substr(end);
  if (out.target.empty() || out.target.front() == '?') out.target.insert(0, "/");
  // A user's name and password would have to be sent in plain.
  if (authority.find('@') != std::string::npos) return bad;
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) out.port = authority.substr(colon + 1);
  out.host = authority.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty() || !IsPort(out.port)) return bad;
  return out;
}

void PostJson(EventLoop& loop, const HttpUrl& url, std::string body, Duration limit,
              std::function<void(const HttpReply&)> done) {
  std::make_shared<Post>(loop, url, std::move(body), std::move(done))->Start(limit);
}

}  // namespace muster
