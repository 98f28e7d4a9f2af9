// The RingConnector of GlooCommunicator: neighbours find each other's address in the store and
// connect through Gloo's TCP transport. See ring_link.h for the rules.
#pragma once

#include <memory>

#include "trainer/distributed/ring_link.h"

namespace muster {

std::unique_ptr<RingConnector> MakeGlooConnector();

}  // namespace muster
