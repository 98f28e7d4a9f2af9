#include "trainer/hub/hub_errors.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace muster {
namespace {

constexpr int kFirstPauseMs = 500;
constexpr int kLongestPauseMs = 16'000;
constexpr int kLongestWishSeconds = 300;

bool IsPassing(long code) {
  return code == 408 || code == 429 || code == 500 || code == 502 || code == 503 || code == 504;
}

std::string TokenAdvice(bool with_token) {
  return with_token ? "the token has no access to it"
                    : "give a token: HF_TOKEN, --token-file, or `hf auth login`";
}

}  // namespace

Status HubStatus(const HttpClientResponse& response, const std::string& what,
                 const std::string& page, bool with_token) {
  const long code = response.code;
  if (code >= 200 && code < 300) return OkStatus();
  const std::string kind = response.Header("x-error-code");
  const std::string number = " (HTTP " + std::to_string(code) + ")";
  if (kind == "GatedRepo" || code == 403) {
    return FailedPrecondition(what + " is gated" + number + ": ask for access at " + page + "; " +
                              TokenAdvice(with_token));
  }
  if (code == 401 || kind == "RepoNotFound") {
    return FailedPrecondition(what + " is private, or there is no such model" + number + ": " +
                              TokenAdvice(with_token) + ", or correct the name");
  }
  if (kind == "RevisionNotFound") return NotFound(what + ": there is no such revision" + number);
  if (code == 404) return NotFound(what + ": the Hub does not have it" + number);
  std::string message = what + ": the Hub answered HTTP " + std::to_string(code);
  const std::string said = response.Header("x-error-message");
  if (!said.empty()) message += ", " + said;
  return IsPassing(code) ? Unavailable(message) : FailedPrecondition(message);
}

Duration RetryPause(int attempt, const std::string& retry_after) {
  int seconds = 0;
  const char* const end = retry_after.data() + retry_after.size();
  const auto [stop, error] = std::from_chars(retry_after.data(), end, seconds);
  if (error == std::errc() && stop == end && seconds >= 0) {
    return std::chrono::seconds(std::min(seconds, kLongestWishSeconds));
  }
  const int doublings = std::clamp(attempt - 1, 0, 10);
  return std::chrono::milliseconds(std::min(kFirstPauseMs << doublings, kLongestPauseMs));
}

}  // namespace muster
