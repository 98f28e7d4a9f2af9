// muster-launcher: starts guardians and file servers as the accounts that own the jobs.
//
// The one part of a node that runs as root. It accepts its worker's user alone, reads one packet of
// fixed size (messages.h) from each connection, and looks accounts up by name itself; no path that
// it opens comes from a message. Each request is handled by a child that ends with its answer,
// so that a directory server that does not answer delays nothing else. What it starts outlives that
// child and the launcher.
//
// Below `directory`, which root alone may change, a job has JOB/run, the account's, in which the
// worker's group may read; and JOB/tmp and JOB/var-tmp, which the job sees as /tmp and /var/tmp.
//
// One thread.
#pragma once

#include <string>

#include "common/base/status.h"

namespace muster::launcher {

struct Options {
  std::string socket;       // made here
  std::string directory;    // made here
  std::string worker_user;  // whose requests are accepted
  std::string guardian;     // program of Verb::kGuardian
  std::string files;        // program of Verb::kFiles
};

// Returns only with an error.
Status Serve(const Options& options);

}  // namespace muster::launcher
