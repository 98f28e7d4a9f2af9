// The secrets of a job's ranks, on their way from the worker, which fetches them, to the guardian,
// which starts the ranks: a file in memory without a name, so that they are in no message, record
// or directory.
//
// Free functions; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/process/spawn.h"

namespace muster {

struct RankSecrets {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;  // content, by the variable that has the file's path
};

// Sealed: it cannot be changed any more.
Result<UniqueFd> MakeSecretFile(const RankSecrets& secrets);
Result<RankSecrets> ReadSecretFile(int fd);

// Has a process inherit them: variables in its environment, and files (0400, without a name) as
// descriptors from `first_target` on, with /proc/self/fd/N in their variables. What is returned is
// to be kept until it has started.
Result<std::vector<UniqueFd>> AddSecrets(const RankSecrets& secrets, int first_target,
                                         SpawnOptions* options);

}  // namespace muster
