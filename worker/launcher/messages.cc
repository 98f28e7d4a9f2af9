#include "worker/launcher/messages.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "common/base/ids.h"

namespace muster::launcher {
namespace {

// A text with a zero at its end, and nothing but zeros behind that.
template <std::size_t kSize>
bool IsText(const char (&field)[kSize]) {
  const std::size_t length = ::strnlen(field, kSize);
  return length < kSize &&
         std::all_of(field + length, field + kSize, [](char c) { return c == 0; });
}

bool IsDirectory(std::string_view path) {
  return path.starts_with('/') && path.find("/../") == path.npos && !path.ends_with("/..");
}

}  // namespace

bool Decode(std::string_view bytes, std::size_t descriptors, Request* request) {
  Request read;
  if (bytes.size() != sizeof read) return false;
  std::memcpy(&read, bytes.data(), sizeof read);
  if (read.version != kVersion || read.reserved[0] != 0 || read.reserved[1] != 0) return false;
  if (!IsText(read.account) || !IsText(read.job) || !IsText(read.devices)) return false;
  const bool starts = read.verb == Verb::kGuardian || read.verb == Verb::kFiles;
  if (descriptors != (starts ? 1U : 0U)) return false;
  if (read.verb != Verb::kEnd && (read.pid != 0 || read.start_time != 0)) return false;
  if (read.verb != Verb::kGuardian && read.devices[0] != 0) return false;
  const bool of_job = read.verb != Verb::kHello && read.verb != Verb::kFiles;
  if (of_job ? !FollowsNameRule(read.job) : read.job[0] != 0) return false;
  if (read.verb == Verb::kHello ? read.account[0] != 0 : !IsAccountName(read.account)) return false;
  switch (read.verb) {
    case Verb::kGuardian:
      if (!IsDirectory(read.devices)) return false;
      break;
    case Verb::kEnd:
      if (read.pid < 0 || read.pid == 1) return false;
      break;
    case Verb::kHello:
    case Verb::kDirectory:
    case Verb::kFiles:
    case Verb::kForget: break;
    default: return false;
  }
  *request = read;
  return true;
}

bool Put(std::string_view text, char* to, std::size_t size) {
  std::fill(to, to + size, '\0');
  if (text.size() >= size) return false;
  std::copy(text.begin(), text.end(), to);
  return true;
}

bool IsOfEachJob(std::string_view path) {
  for (const std::string_view shared : {"/tmp", "/var/tmp", "/dev/shm"})
    if (path.starts_with(shared) && (path.size() == shared.size() || path[shared.size()] == '/'))
      return true;
  return false;
}

bool IsAccountName(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '@';
  };
  return !name.empty() && name.size() < sizeof(Request::account) && name.front() != '-' &&
         name.front() != '.' && std::ranges::all_of(name, allowed);
}

}  // namespace muster::launcher
