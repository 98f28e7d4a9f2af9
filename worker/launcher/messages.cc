#include "worker/launcher/messages.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>

#include "common/base/ids.h"

namespace muster::launcher {
namespace {

struct Form {
  bool account = false, job = false, devices = false;
  std::size_t descriptors = 0;
};
// By verb.
constexpr Form kForms[] = {
    {},
    {},
    {.account = true, .job = true},
    {.account = true, .job = true, .devices = true, .descriptors = 1},
    {.account = true, .descriptors = 1},
    {.job = true},
    {.job = true},
};

// A text with a zero at its end, and nothing but zeros behind that.
template <std::size_t kSize>
bool IsText(const char (&field)[kSize]) {
  const std::size_t length = ::strnlen(field, kSize);
  return length < kSize &&
         std::all_of(field + length, field + kSize, [](char c) { return c == 0; });
}

// What getpwnam may be asked for.
bool IsAccountName(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '@';
  };
  return !name.empty() && name.front() != '-' && name.front() != '.' &&
         std::ranges::all_of(name, allowed);
}

bool IsDirectory(std::string_view path) {
  return path.starts_with('/') && path.find("/../") == path.npos && !path.ends_with("/..");
}

bool HasForm(const Request& request, const Form& form) {
  return (form.account ? IsAccountName(request.account) : request.account[0] == 0) &&
         (form.job ? FollowsNameRule(request.job) : request.job[0] == 0) &&
         (form.devices ? IsDirectory(request.devices) : request.devices[0] == 0);
}

}  // namespace

std::optional<Request> Decode(std::string_view bytes, std::size_t descriptors) {
  Request read;
  if (bytes.size() != sizeof read) return std::nullopt;
  std::memcpy(&read, bytes.data(), sizeof read);
  const auto verb = static_cast<std::size_t>(read.verb);
  if (read.version != kVersion || read.reserved[0] != 0 || read.reserved[1] != 0 || verb == 0 ||
      verb >= std::size(kForms) || descriptors != kForms[verb].descriptors)
    return std::nullopt;
  const bool texts = IsText(read.account) && IsText(read.job) && IsText(read.devices);
  return texts && HasForm(read, kForms[verb]) ? std::optional(read) : std::nullopt;
}

bool Put(std::string_view text, char* to, std::size_t size) {
  std::fill(to, to + size, '\0');
  if (text.size() >= size) return false;
  std::copy(text.begin(), text.end(), to);
  return true;
}

}  // namespace muster::launcher
