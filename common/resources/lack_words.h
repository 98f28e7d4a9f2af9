// What nodes lack for a job, in words: for the coordinator's reasons and the client's explanations.
#pragma once

#include <string_view>

namespace muster {

// "too few GPUs" of "devices", "too few free GPUs" where they are `occupied`; "too little" of a
// name that is not known. The names are those of Lack (coordinator/scheduler/node_fit.h).
std::string_view LackWords(std::string_view lack, bool occupied);

}  // namespace muster
