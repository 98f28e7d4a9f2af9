// FileIdentity: whether a file is still the one, with the same bytes, that was looked at before.
//
// Every way to change a file's bytes or its name sets one of these numbers, but for a change within
// the same tick of the file system's clock, some milliseconds. Device numbers are of one host.
//
// Plain value; any thread.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace muster {

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since the Unix epoch
  std::int64_t changed_ns = 0;   // of what the file system keeps of it, the name included

  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

FileIdentity IdentityOf(const struct stat& info);
// The identity of the file that has this name now; asks the file server, where there is one.
Result<FileIdentity> IdentityOf(const std::string& path);

}  // namespace muster
