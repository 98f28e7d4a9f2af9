// StoreContents: all that a store has, of whatever kind, as one value: what a backup holds.
//
// Readers (here and in *_contents.h) see one moment of a store, and may run beside its coordinator,
// which waits for none of them. Writers make a store whole or not at all: one that is killed leaves
// what was there before. They are refused while a coordinator has the store. Free functions; any
// thread; they block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/control/effects.h"

namespace muster {

struct StoreContents {
  // The newest that a coordinator of the store has had; 0: it counts none.
  std::uint64_t epoch = 0;
  std::string payload;  // operations that make the contents, as those of a snapshot in a journal
};

// Called now and then with the number of records so far; what is not OK ends the work.
using RecordsProgress = std::function<Status(std::uint64_t records)>;

// What becomes of a store that has records already.
enum class IfNotEmpty { kRefuse, kReplace };

// In the order of a snapshot, so that equal contents are equal texts; with the newest `kept` events
// and as many lines of the audit trail.
Result<StoreContents> InOrder(StoreContents contents, std::uint64_t kept);
// The operations as values. kDataLoss names the record that cannot be read.
Result<std::vector<StoreOperation>> OperationsOf(const StoreContents& contents);

// A file of its own, in the format of a journal's snapshots. kDataLoss names the file and the byte.
Result<StoreContents> ReadBackup(const std::string& path);
// kAlreadyExists: there is such a file.
Status WriteBackup(const std::string& path, const StoreContents& contents);

}  // namespace muster
