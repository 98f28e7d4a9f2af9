// The RendezvousStore of GPU gangs: their groups get an NcclTransport.
//
// The first rank of a group leaves NCCL's ids for the others in the generation's store. All groups
// of a generation are one gang (nccl_gang.h). A gang that cannot be ended (ncclCommAbort blocks)
// makes Open of the next fail with kFailedPrecondition: the process must be replaced. The
// destructor waits for the gang's end, but not for ever.
#pragma once

#include <memory>

#include "trainer/comm/transport.h"
#include "trainer/comm/transport/nccl/nccl_lane.h"

namespace muster {

std::shared_ptr<RendezvousStore> MakeNcclRendezvous(std::shared_ptr<const NcclTables> tables);

}  // namespace muster
