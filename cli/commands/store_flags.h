// The flags that say which store a verb is for, as muster-coordinator has them. Without any it is
// that of --dir.
//
// One thread.
#pragma once

#include <string>

#include "cli/commands/command_line.h"
#include "coordinator/backup/store_place.h"

namespace muster::verbs {

struct StoreFlags {
  std::string journal;
  std::string etcd;  // addresses
  EtcdPlace place;   // but for them

  // `both`: --journal and --etcd may be given together.
  void AddTo(Flags& flags, bool both = false);
  // kInvalidArgument: flags that do not go together.
  Result<StorePlace> Chosen(const CommandContext& context) const;
  // That of the kind "sqlite", "journal" or "etcd", where it is.
  Result<StorePlace> OfKind(const std::string& kind, const CommandContext& context) const;
};

// The backup in a file.
StorePlace BackupAt(const std::string& file);

// Shows a person the records so far; ends the work when it is interrupted.
RecordsProgress ShowProgress(CommandContext& context);

}  // namespace muster::verbs
