// Keeps a SQLite store as an earlier version of Muster wrote it, before it is converted: the way
// back to that version.
//
// Called by SqliteStore as it opens the file, which it has locked by then. Blocks on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "coordinator/store/sqlite_database.h"

namespace muster {

// Copies the database at `path`, what lies in its log included, to PATH.schema-SCHEMA, mode 0600
// and synced, and returns that name; where it is taken, PATH.schema-SCHEMA-2 and so on, since an
// existing copy is never replaced. Without room, or where the file cannot be made, nothing is left
// of it, the database is as it was, and the status says what to do.
Result<std::string> KeepCopyOfSchema(SqliteDatabase& database, const std::string& path,
                                     std::int64_t schema);

}  // namespace muster
