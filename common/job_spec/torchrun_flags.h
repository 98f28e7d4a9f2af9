// The command line of torchrun (torch.distributed.run of PyTorch 2.11), as a command job.
//
// Every flag is one of three: taken over, accepted as meaning nothing here with the reason in a
// note, or refused with a sentence; a flag that is in no table is refused too. Flags have their
// dashes or underscores, their short names, unique beginnings and their PET_* variables, as
// torchrun's own. The job runs as torchrun's processes do: the script in the caller's directory and
// with his variables, each rank with torchrun's; what torchrun counts as restarts of the group,
// Muster counts as attempts.
//
// Pure functions; any thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct TorchrunFlags {
  std::map<std::string, std::string> values;  // by name: "nproc-per-node"; also those not given
  std::string script;
  std::vector<std::string> script_arguments;

  const std::string& at(const std::string& name) const { return values.at(name); }
  bool on(const std::string& name) const { return values.at(name) == "1"; }
};

// `arguments` are what stands behind `torchrun`. What is missing, malformed or unknown is
// kInvalidArgument and names the flag. `before`: flags of the caller's own, "queue", which stand
// before torchrun's; the refusal of one says so.
Result<TorchrunFlags> ParseTorchrunFlags(const std::vector<std::string>& arguments,
                                         const std::map<std::string, std::string>& environment,
                                         const std::vector<std::string>& before = {});

// What torchrun would find out by itself.
struct TorchrunSurroundings {
  std::map<std::string, std::string> environment;  // the caller's
  std::string directory;                           // the caller's, absolute
  std::string python = "python3";                  // PYTHON_EXEC counts before it
  int cpus = 1;                                    // of a node
  int gpus = 0;
  int nodes = 0;  // that the cluster has; 0: not known
};

struct TorchrunJob {
  std::string yaml;  // the job file, with an absolute workdir
  bool standalone = false;
  int nodes = 1;
  int ranks_per_node = 1;
  std::string log_dir;             // empty: none
  std::set<int> shown;             // local ranks whose output belongs on the console
  std::vector<std::string> notes;  // flags that were accepted and mean nothing here, one a line
};

Result<TorchrunJob> JobFromTorchrun(const TorchrunFlags& flags, const TorchrunSurroundings& with);

}  // namespace muster
