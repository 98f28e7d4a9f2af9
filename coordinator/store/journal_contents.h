// The contents of a store in a journal (store_contents.h).
#pragma once

#include <string>

#include "coordinator/store/store_contents.h"

namespace muster {

// kNotFound: there is no journal in that directory.
Result<StoreContents> ReadJournalStore(const std::string& dir);
// The journal's coordinator, if it has one, ends with its next commit or a second later.
Status FenceJournal(const std::string& dir);
// kAlreadyExists: the directory is not empty. No journal is replaced, since nothing shows whether a
// coordinator has it.
Status WriteJournalStore(const std::string& dir, const StoreContents& contents);

}  // namespace muster
