#include "coordinator/store/schema_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr int kMostCopies = 1000;

Status Write(SqliteDatabase& database, const std::string& partial) {
  // Made here for its mode. SQLite writes into an empty file, and does not sync it.
  const UniqueFd file(::open(partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, "create " + partial);
  MUSTER_ASSIGN_OR_RETURN(SqliteStatement copy, database.Prepare("VACUUM INTO ?"));
  MUSTER_RETURN_IF_ERROR(copy.Bind(1, partial).Run().WithContext("write " + partial));
  if (::fsync(file.get()) != 0) return ErrnoStatus(errno, "sync " + partial);
  return OkStatus();
}

// Gives the whole copy its name, which no other file may have.
Result<std::string> Name(const std::string& partial, const std::string& wanted) {
  for (int number = 1; number <= kMostCopies; ++number) {
    std::string name = number == 1 ? wanted : wanted + "-" + std::to_string(number);
    if (::link(partial.c_str(), name.c_str()) == 0) return name;
    if (errno != EEXIST) return ErrnoStatus(errno, "link " + partial + " to " + name);
  }
  return AlreadyExists(wanted + " and " + std::to_string(kMostCopies) + " more copies are there");
}

}  // namespace

Result<std::string> KeepCopyOfSchema(SqliteDatabase& database, const std::string& path,
                                     std::int64_t schema) {
  const std::string wanted = path + ".schema-" + std::to_string(schema);
  const std::string partial = wanted + ".partial";
  ::unlink(partial.c_str());  // of a start that was killed
  const Status written = Write(database, partial);
  Failpoint("store.copy.written");
  Result<std::string> name = written.ok() ? Name(partial, wanted) : Result<std::string>(written);
  Failpoint("store.copy.named");
  ::unlink(partial.c_str());
  if (name.ok()) {
    const Status synced = SyncDirectory(std::filesystem::path(path).parent_path().string());
    if (!synced.ok()) name = synced;
  }
  if (name.ok()) return name;
  return name.status().WithContext(
      "the store has schema " + std::to_string(schema) +
      " and is converted only once a copy of it lies beside it; make room there, or move files "
      "away, and start again (nothing was changed)");
}

}  // namespace muster
