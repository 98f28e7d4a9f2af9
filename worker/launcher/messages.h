// What a worker asks muster-launcher for, and the answers: one packet of fixed size each way.
//
// A connection has one request and one answer. Texts end with a zero and are bounded; every byte
// behind that zero is zero too, so that equal requests are equal bytes. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/version_table.h"

namespace muster::launcher {

inline constexpr std::uint8_t kVersion = kLauncherPackets.max;

enum class Verb : std::uint8_t {
  kHello = 1,      // answers where the directories of jobs are
  kDirectory = 2,  // makes the job's directories, which belong to the account
  kGuardian = 3,   // the same, and starts muster-guardian in them, as the account
  kFiles = 4,      // starts the file server of an account
  kEnd = 5,        // ends whatever is in the job's cgroup
  kForget = 6,     // the same, and removes the job's directories, which are empty
};

struct Request {
  std::uint8_t version = kVersion;
  Verb verb = Verb::kHello;
  std::uint8_t reserved[2] = {};
  char account[64] = {};   // kDirectory, kGuardian and kFiles
  char job[64] = {};       // of all but kHello and kFiles
  char devices[256] = {};  // kGuardian: where devices are locked
};
static_assert(sizeof(Request) == 388);

struct Reply {
  std::uint8_t version = kVersion;
  std::uint8_t code = 0;  // a StatusCode; kAborted: processes still end, ask again
  std::uint8_t reserved[2] = {};
  char text[252] = {};  // what is wrong; of kHello the directory
};
static_assert(sizeof(Reply) == 256);

// The request, if the bytes are one that may be acted on and `descriptors` of them came with it.
// Pure.
std::optional<Request> Decode(std::string_view bytes, std::size_t descriptors);

// False: the text is too long for it.
bool Put(std::string_view text, char* to, std::size_t size);
template <std::size_t kSize>
bool Put(std::string_view text, char (&to)[kSize]) {
  return Put(text, to, kSize);
}

}  // namespace muster::launcher
