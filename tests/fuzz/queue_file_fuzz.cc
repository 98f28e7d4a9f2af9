// The file of a cluster's queues.
#include <string>

#include "coordinator/queues/queue_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view yaml = fuzz::TextOf(data, size);
  const Result<QueueTree> tree = ParseQueueFile(yaml, "queues.yaml");
  if (!tree.ok()) {
    fuzz::Require(tree.status().code() == StatusCode::kInvalidArgument, tree.status().ToString());
    return 0;
  }
  fuzz::Require(ParseStoredQueues(1, std::string(yaml)).ok(), "what was applied is read again");
  return 0;
}
