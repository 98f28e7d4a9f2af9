// `muster-trainer store`: a TCPStore for programs that take torchrun's place for granted.
//
// The guardian of a `command` job with `rendezvous: agent` starts it on the socket it has bound,
// and sets TORCHELASTIC_USE_AGENT_STORE=True for the ranks, whose rank 0 then joins as a client.
#pragma once

#include "trainer/comm/rank_env.h"

namespace muster {

// Serves on the descriptor named by MUSTER_LISTEN_FD until SIGTERM or SIGINT arrives or the parent
// process dies. Prints nothing but errors. Returns the process's exit code. Call it from main's
// thread before any other thread exists: it blocks the two signals.
int RunStore(const GetEnv& get);

}  // namespace muster
