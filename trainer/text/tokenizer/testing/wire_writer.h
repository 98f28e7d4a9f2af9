// WireWriter: makes messages in the wire format of Protocol Buffers, for tests.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

class WireWriter {
 public:
  WireWriter& Int(std::uint32_t number, std::int64_t value) {
    Varint(number << 3);
    Varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  WireWriter& Float(std::uint32_t number, float value) {
    Varint((number << 3) | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);
    return *this;
  }
  WireWriter& Bytes(std::uint32_t number, std::string_view value) {
    Varint((number << 3) | 2);
    Varint(value.size());
    bytes_ += value;
    return *this;
  }
  WireWriter& Varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace muster
