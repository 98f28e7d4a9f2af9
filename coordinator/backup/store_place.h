// StorePlace: where a store is, of whatever kind, and what is done with it as a whole: backups,
// restores, migrations. What runs this needs no coordinator.
//
// A value, and free functions; any thread; they block. docs/operations.md says how people use it.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "coordinator/store/etcd_contents.h"
#include "coordinator/store/store_contents.h"

namespace muster {

struct StorePlace {
  enum class Kind { kSqlite, kJournal, kEtcd, kBackup };
  Kind kind = Kind::kSqlite;
  std::string path;  // the file, or the journal's directory; absolute
  EtcdPlace etcd;

  std::string Text() const;  // for messages
};

// One moment of it; a coordinator may run on.
Result<StoreContents> ReadStore(const StorePlace& place, const RecordsProgress& progress);

// Makes `place` a store of the contents of an earlier moment, or leaves it as it was. Workers
// accept the coordinator that starts next, whatever epochs they have met. A job that is not over
// goes on with generations that none of its lost attempts had. Returns the epoch that the store has
// now.
Result<std::uint64_t> RestoreStore(StoreContents contents, const StorePlace& place,
                                   IfNotEmpty if_not_empty, const RecordsProgress& progress);

// Makes `to` a store of what `from` has now, whose coordinator must have ended, or leaves `to` as
// it was; `from` stays as it is. kFailedPrecondition: it has a coordinator; that of a journal is
// fenced. Returns the epoch of `to`.
Result<std::uint64_t> MigrateStore(const StorePlace& from, const StorePlace& to,
                                   IfNotEmpty if_not_empty, const RecordsProgress& progress);

// How many records there are of some kinds.
struct ContentsSummary {
  std::uint64_t jobs = 0;       // that are not archived
  std::uint64_t live_jobs = 0;  // of those, that are not over
  std::uint64_t archived = 0;
  std::uint64_t nodes = 0;
  std::uint64_t events = 0;
  std::uint64_t audit = 0;  // lines
};
Result<ContentsSummary> Summarize(const StoreContents& contents);

}  // namespace muster
