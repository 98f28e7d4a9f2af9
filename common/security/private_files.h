// Files that hold secrets, or that decide which keys are trusted: read only if no other user can
// have read or written them.
//
// A private file is a regular file (no symbolic link) of the process's own user; a secret one may
// be read by no other user, a trusted one be written by no other user. The refusal says which
// command puts it right. Free functions; any thread; they block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace muster {

enum class Privacy {
  kSecret,   // no access for group and others: keys, tokens
  kTrusted,  // not writable for group and others: certificates, lists
};

// The whole file. kNotFound where there is none, kPermissionDenied for one that is not private.
Result<std::string> ReadPrivateFile(const std::string& path, Privacy privacy);

// As WriteFileAtomically; secret files get mode 0600, trusted ones 0644.
Status WritePrivateFile(const std::string& path, std::string_view content, Privacy privacy);

// Makes the directory, with mode 0700, or checks that the one there is the user's own, no link, and
// that no other user can write to it.
Status MakePrivateDirectory(const std::string& path);
Status CheckPrivateDirectory(const std::string& path);

// Locks a directory against the other writers of it, in this process and in others, until the
// descriptor is closed. kUnavailable when another one has had it all the time (file_lock.h).
Result<UniqueFd> LockDirectory(const std::string& path);

// Which version of a file this is, to see whether it has been replaced. Equal for a file that is
// not there.
struct FileStamp {
  std::int64_t inode = 0;
  std::int64_t modified_ns = 0;
  std::int64_t size = -1;  // -1: no file

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp StampOf(const std::string& path);

}  // namespace muster
