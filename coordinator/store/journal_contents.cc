#include "coordinator/store/journal_contents.h"

#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/base/files.h"
#include "coordinator/store/journal.h"

namespace muster {

Result<StoreContents> ReadJournalStore(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir + "/epoch", error))
    return NotFound(dir + " has no journal; name the coordinator's --journal");
  PosixJournalFiles files;
  return Journal::Read(files, dir);
}

Status FenceJournal(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir + "/epoch", error)) return OkStatus();  // none to fence
  PosixJournalFiles files;
  return Journal::Open(files, {.dir = dir, .node = "muster store migrate", .pid = ::getpid()})
      .status();
}

Status WriteJournalStore(const std::string& dir, const StoreContents& contents) {
  std::error_code error;
  if (std::filesystem::exists(dir, error) && !std::filesystem::is_empty(dir, error))
    return AlreadyExists(dir + " is not empty; move it away first, or name another --journal");
  PosixJournalFiles files;
  const std::string partial = dir + ".partial";
  std::filesystem::remove_all(partial, error);  // of one that was killed
  MUSTER_RETURN_IF_ERROR(Journal::Write(files, partial, contents));
  if (::rename(partial.c_str(), dir.c_str()) != 0)
    return ErrnoStatus(errno, "rename " + partial + " to " + dir);
  return SyncDirectory(std::filesystem::path(dir).parent_path().string());
}

}  // namespace muster
