// How many files this process may have open. A gang's store, a coordinator and a worker hold one
// descriptor per rank, node or client, and the usual soft limit of 1024, which is there for
// programs that use select(2), ends a gang of a thousand ranks while it forms.
//
// Called by main before there are threads; what it was before is known to any thread afterwards.
#pragma once

#include <sys/resource.h>

#include <optional>

namespace muster {

// Raises the soft limit to the hard one, but not beyond a million: some libraries keep a table of
// that length. A limit that cannot be raised stays as it is.
void RaiseOpenFilesLimit();

// What was raised, for children that are to start with what this process was started with
// (common/process); empty: nothing was.
std::optional<rlimit> OpenFilesLimitBefore();

}  // namespace muster
