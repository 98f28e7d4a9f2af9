// What the ranks of a communicator settle among themselves.
//
// Every function is collective; the trainer's thread. An error is that of a collective, unless said
// otherwise.
#pragma once

#include <string>

#include "common/base/status.h"
#include "trainer/comm/communicator.h"

namespace muster {

// Rank `root`'s text becomes that of all ranks.
Status ShareText(Communicator& communicator, std::string* text, int root);

// OK where `mine` is OK on all ranks. Else the status of the rank with the highest `severity`, of
// several the first, with its number before the message: the same on every rank. `severity` is 0
// where `mine` is OK, else positive.
Status AgreeOnStatus(Communicator& communicator, const Status& mine, int severity);
Status AgreeOnStatus(Communicator& communicator, const Status& mine);

}  // namespace muster
