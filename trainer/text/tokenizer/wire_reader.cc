#include "trainer/text/tokenizer/wire_reader.h"

#include <bit>

namespace muster {
namespace {

Status WrongType(const char* name, const char* wanted) {
  return InvalidArgument(std::string(name) + " is not " + wanted);
}

}  // namespace

Result<std::string_view> WireField::Bytes(const char* name) const {
  if (type != WireType::kBytes) return WrongType(name, "a string");
  return bytes;
}

Result<std::int64_t> WireField::Int(const char* name) const {
  if (type != WireType::kVarint) return WrongType(name, "an integer");
  return static_cast<std::int64_t>(value);
}

Result<bool> WireField::Bool(const char* name) const {
  if (type != WireType::kVarint) return WrongType(name, "true or false");
  return value != 0;
}

Result<float> WireField::Float(const char* name) const {
  if (type != WireType::kFixed32) return WrongType(name, "a float");
  return std::bit_cast<float>(static_cast<std::uint32_t>(value));
}

Status WireReader::EndsEarly() const {
  return InvalidArgument("it ends within a field (at byte " + std::to_string(at_) + " of " +
                         std::to_string(message_.size()) + " of a message)");
}

Result<std::uint64_t> WireReader::Varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at_ >= message_.size()) return EndsEarly();
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return InvalidArgument("a number of more than ten bytes stands before byte " +
                         std::to_string(at_));
}

Result<std::uint64_t> WireReader::Fixed(std::size_t bytes) {
  if (message_.size() - at_ < bytes) return EndsEarly();
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(message_[at_ + i])} << (8 * i);
  at_ += bytes;
  return value;
}

Result<std::optional<WireField>> WireReader::Next() {
  if (at_ >= message_.size()) return std::optional<WireField>();
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t tag, Varint());
  WireField field;
  field.number = static_cast<std::uint32_t>(tag >> 3);
  field.type = static_cast<WireType>(tag & 7);
  if (field.number == 0 || tag >> 32 != 0)
    return InvalidArgument("the field before byte " + std::to_string(at_) + " has no number");
  switch (field.type) {
    case WireType::kVarint: {
      MUSTER_ASSIGN_OR_RETURN(field.value, Varint());
      return std::optional(field);
    }
    case WireType::kFixed64:
    case WireType::kFixed32: {
      MUSTER_ASSIGN_OR_RETURN(field.value, Fixed(field.type == WireType::kFixed64 ? 8 : 4));
      return std::optional(field);
    }
    case WireType::kBytes: {
      MUSTER_ASSIGN_OR_RETURN(const std::uint64_t length, Varint());
      if (message_.size() - at_ < length) return EndsEarly();
      field.bytes = message_.substr(at_, static_cast<std::size_t>(length));
      at_ += static_cast<std::size_t>(length);
      return std::optional(field);
    }
  }
  return InvalidArgument("the field before byte " + std::to_string(at_) +
                         " is of an unknown wire type");
}

}  // namespace muster
