// JournalFiles: the file system operations of a journal, so that tests can stop a writer before and
// after each of them, and run two writers over a model.
//
// Owned by the code that opens a journal, and outlives it. Every function returns 0 or an errno and
// may block for as long as the file system does. PosixJournalFiles may be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace muster {

class JournalFiles {
 public:
  virtual ~JournalFiles() = default;
  // mkdir with mode 0700, and its name in the parent directory is durable; fine if it exists and no
  // other user may write into it, else EPERM.
  virtual int MakeDirectory(const std::string& path) = 0;
  // Creates the file, writes, fsyncs and closes it; EEXIST if it is there. Its name is not yet
  // durable.
  virtual int Write(const std::string& path, std::string_view bytes) = 0;
  // Gives the file a second name: EEXIST if it is taken. The file server decides.
  virtual int Link(const std::string& from, const std::string& to) = 0;
  virtual int Remove(const std::string& path) = 0;
  // Makes the names in it durable.
  virtual int SyncDirectory(const std::string& path) = 0;
  // The whole file as the server has it: ENOENT is not cached.
  virtual int Read(const std::string& path, std::string* bytes) = 0;
  // Names in it, in no order, without "." and "..".
  virtual int List(const std::string& path, std::vector<std::string>* names) = 0;
};

class PosixJournalFiles : public JournalFiles {
 public:
  int MakeDirectory(const std::string& path) override;
  int Write(const std::string& path, std::string_view bytes) override;
  int Link(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int SyncDirectory(const std::string& path) override;
  int Read(const std::string& path, std::string* bytes) override;
  int List(const std::string& path, std::vector<std::string>* names) override;
};

// What failed, why, and what to do about it. `error` is an errno.
Status JournalError(int error, const std::string& what);

}  // namespace muster
