// Messages of protobuf in targets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {

// The message, as gRPC would hand it over: nothing for what is none. What is decoded can be encoded
// and is the same then.
template <typename Message>
std::optional<Message> Decoded(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  const std::string encoded = message.SerializeAsString();
  Message again;
  Require(again.ParseFromString(encoded) && again.SerializeAsString() == encoded,
          "a message that is encoded is the same");
  return message;
}

}  // namespace muster::fuzz
