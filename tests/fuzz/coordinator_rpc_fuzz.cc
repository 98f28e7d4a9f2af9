// What a coordinator says to a worker: one message.
#include "common/wire/codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const auto message = fuzz::Decoded<v1::CoordinatorMessage>(fuzz::TextOf(data, size));
  if (!message) return 0;
  const Result<CoordinatorMessage> order = FromProto(*message);
  if (!order.ok()) return 0;
  const std::string sent = ToProto(*order).SerializeAsString();
  const Result<CoordinatorMessage> again = FromProto(*fuzz::Decoded<v1::CoordinatorMessage>(sent));
  fuzz::Require(again.ok() && ToProto(*again).SerializeAsString() == sent,
                "an order that is sent on is the same");
  return 0;
}
