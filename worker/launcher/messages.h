// What a worker asks muster-launcher for, and the answers: one packet of fixed size each way.
//
// A connection has one request and one answer. Texts end with a zero and are bounded; every byte
// behind that zero is zero too, so that equal requests are equal bytes. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::launcher {

inline constexpr std::uint8_t kVersion = 1;

enum class Verb : std::uint8_t {
  kHello = 1,      // answers where the directories of jobs are
  kDirectory = 2,  // makes the job's directories, which belong to the account
  kGuardian = 3,   // the same, and starts muster-guardian in them, as the account
  kFiles = 4,      // starts the file server of an account
  kEnd = 5,        // ends a process of the account, and whatever is in the job's cgroup
  kForget = 6,     // removes the job's directories, which are empty, and its cgroup
};

struct Request {
  std::uint8_t version = kVersion;
  Verb verb = Verb::kHello;
  std::uint8_t reserved[2] = {};
  std::int32_t pid = 0;          // kEnd; 0: none
  std::uint64_t start_time = 0;  // of that process
  char account[64] = {};         // of all but kHello
  char job[64] = {};             // of all but kHello and kFiles
  char devices[256] = {};        // kGuardian: where devices are locked
};
static_assert(sizeof(Request) == 400);

enum class Reason : std::uint8_t {
  kDone = 0,
  kBadRequest,
  kNoAccount,       // this node has none of that name
  kSystemAccount,   // its uid or gid is below kFirstId
  kForeignProcess,  // the process is of another account
  kStillEnding,     // ask again
  kFailed,          // `error` is errno, `detail` what failed
};

struct Reply {
  std::uint8_t version = kVersion;
  Reason reason = Reason::kDone;
  std::uint8_t reserved[2] = {};
  std::int32_t error = 0;
  std::int32_t pid = 0;  // of what was started
  std::uint32_t uid = 0;
  std::uint64_t start_time = 0;
  char detail[232] = {};  // kHello: the directory
};
static_assert(sizeof(Reply) == 256);

// Ids below it are the system's, and no job runs with one.
inline constexpr std::uint32_t kFirstId = 1000;

// Whether the bytes are a request that may be acted on, which comes with `descriptors` of them;
// `request` is filled in that case alone. Pure.
bool Decode(std::string_view bytes, std::size_t descriptors, Request* request);

// False: the text is too long for it.
bool Put(std::string_view text, char* to, std::size_t size);
template <std::size_t kSize>
bool Put(std::string_view text, char (&to)[kSize]) {
  return Put(text, to, kSize);
}

// Whether a path lies in a directory of which each job has one of its own.
bool IsOfEachJob(std::string_view path);

// A name that getpwnam may be asked for: letters, digits, '.', '_', '-' and '@', no '-' or '.'
// first.
bool IsAccountName(std::string_view name);

}  // namespace muster::launcher
