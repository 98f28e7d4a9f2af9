// IpAddress and IpPrefix: numeric addresses as values. No name is ever looked up here.
//
// Value types; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

class IpAddress {
 public:
  // 0.0.0.0.
  IpAddress() = default;

  // "10.0.0.1", "fd00::1", "[fd00::1]". kInvalidArgument for everything else, names included.
  static Result<IpAddress> Parse(std::string_view text);
  // The bytes of a sockaddr's address, in the network's order.
  static IpAddress FromV4(const void* four_bytes);
  static IpAddress FromV6(const void* sixteen_bytes);

  bool is_v4() const { return is_v4_; }
  // Reaches this host only: 127.0.0.0/8, ::1.
  bool is_loopback() const;
  // Reaches the next switch only, or was made up for want of another: 169.254.0.0/16, fe80::/10.
  bool is_link_local() const;
  bool is_unspecified() const {
    return *this == IpAddress() || *this == FromV6(IpAddress().bytes());
  }

  // 4 or 16 of them, in the network's order.
  const std::uint8_t* bytes() const { return bytes_.data(); }
  int bits() const { return is_v4_ ? 32 : 128; }
  std::string ToString() const;

  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  bool is_v4_ = true;
  std::array<std::uint8_t, 16> bytes_{};  // those after the fourth are 0 in IPv4
};

// The addresses that begin with the same bits: "10.1.0.0/16".
class IpPrefix {
 public:
  // Bits after the prefix are ignored, so that "10.1.2.3/16" is the network of 10.1.2.3.
  static Result<IpPrefix> Parse(std::string_view text);

  bool Contains(const IpAddress& address) const;

 private:
  IpPrefix(IpAddress address, int length) : address_(address), length_(length) {}

  IpAddress address_;
  int length_ = 0;
};

}  // namespace muster
