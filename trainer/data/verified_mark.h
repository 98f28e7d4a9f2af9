// VerifiedMark: that every byte of an entry of the token cache was checked on this host since it
// booted, so that one process of a node reads all of it and not each at each start.
//
// A line in a file beside the entry: BOOT_ID DEVICE INODE BYTES MODIFIED_NS. It says nothing of an
// entry that was replaced, cut or written to since. The file is replaced as a whole.
//
// Plain value; any thread.
#pragma once

#include <string>

#include "trainer/data/file_identity.h"

namespace muster {

class VerifiedMark {
 public:
  explicit VerifiedMark(const std::string& entry_path);

  bool Holds(const FileIdentity& entry) const;
  // Does nothing where the folder cannot be written, or the host does not report when it booted.
  void Set(const FileIdentity& entry) const;
  // The next reader of the entry checks it.
  void Clear() const;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace muster
