#include "trainer/distributed/gloo_communicator.h"

#include "trainer/distributed/gloo_connector.h"
#include "trainer/distributed/ring_communicator.h"

namespace muster {

std::unique_ptr<Communicator> MakeGlooCommunicator(GlooOptions options) {
  return std::make_unique<RingCommunicator>(MakeGlooConnector(), options.operation_timeout);
}

}  // namespace muster
