// WireReader: the fields of a message in the wire format of Protocol Buffers.
//
// It knows only what the reader of SentencePiece models needs: no groups, no schema. The
// message is not copied and outlives the reader. Reading past the end, however long a field says it
// is, is an error and not done.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;  // of a number
  std::string_view bytes;   // of kBytes

  // As the schema's type; an error, with `name`, where the field is of another one.
  Result<std::string_view> Bytes(const char* name) const;
  Result<std::int64_t> Int(const char* name) const;
  Result<bool> Bool(const char* name) const;
  Result<float> Float(const char* name) const;
};

class WireReader {
 public:
  explicit WireReader(std::string_view message) : message_(message) {}

  // Nothing at the end of the message.
  Result<std::optional<WireField>> Next();

 private:
  Result<std::uint64_t> Varint();
  Result<std::uint64_t> Fixed(std::size_t bytes);
  Status EndsEarly() const;

  std::string_view message_;
  std::size_t at_ = 0;
};

}  // namespace muster
