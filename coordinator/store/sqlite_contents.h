// The contents of a store in an SQLite file (store_contents.h).
#pragma once

#include <string>

#include "common/base/locked_record.h"
#include "coordinator/store/store_contents.h"

namespace muster {

// kNotFound: there is no such file; kFailedPrecondition: another version wrote it.
Result<StoreContents> ReadSqliteStore(const std::string& path, const RecordsProgress& progress);
// So that no coordinator starts on it. kFailedPrecondition: one has it.
Result<LockedRecord> LockForWriting(const std::string& path);
// kFailedPrecondition: a coordinator has it; kAlreadyExists: it has records. A file that is
// replaced stays as PATH.replaced.
Status WriteSqliteStore(const std::string& path, const StoreContents& contents,
                        IfNotEmpty if_not_empty, const RecordsProgress& progress);

}  // namespace muster
