// Queues as JSON, and what they have in words.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "cli/base/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

Json QueueListJson(const v1::ShowQueuesResponse& queues);

// "8 GPUs, 4 slots"; "-" for nothing, and for no ceiling.
std::string AmountText(const v1::Amounts& amounts);
std::string AmountText(const v1::Ceiling& ceiling);
// "8 GPUs, 2 running, 100 queued": what each of its users may have.
std::string UserLimitsText(const v1::Queue& queue);

}  // namespace muster
