#include "common/net/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace muster {

Result<IpAddress> IpAddress::Parse(std::string_view text) {
  std::string bare(text);
  if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']')
    bare = bare.substr(1, bare.size() - 2);
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, bare.c_str(), &v4) == 1) return FromV4(&v4);
  if (::inet_pton(AF_INET6, bare.c_str(), &v6) == 1) return FromV6(&v6);
  return InvalidArgument("'" + std::string(text) +
                         "' is no numeric address; give one such as 10.0.0.1 (names are not looked "
                         "up, since nodes need not know each other's)");
}

IpAddress IpAddress::FromV4(const void* four_bytes) {
  IpAddress address;
  std::memcpy(address.bytes_.data(), four_bytes, 4);
  return address;
}

IpAddress IpAddress::FromV6(const void* sixteen_bytes) {
  IpAddress address;
  address.is_v4_ = false;
  std::memcpy(address.bytes_.data(), sixteen_bytes, 16);
  return address;
}

bool IpAddress::is_loopback() const {
  if (is_v4_) return bytes_[0] == 127;
  return std::memcmp(bytes_.data(), &in6addr_loopback, 16) == 0;
}

bool IpAddress::is_link_local() const {
  if (is_v4_) return bytes_[0] == 169 && bytes_[1] == 254;
  return bytes_[0] == 0xfe && (bytes_[1] & 0xc0) == 0x80;
}

std::string IpAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(is_v4_ ? AF_INET : AF_INET6, bytes_.data(), text, sizeof text);
  return text;
}

Result<IpPrefix> IpPrefix::Parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto wrong = [&] {
    return InvalidArgument("'" + std::string(text) +
                           "' is no network; write it as 10.1.0.0/16 or fd00:1::/32");
  };
  if (slash == std::string_view::npos) return wrong();
  const auto address = IpAddress::Parse(text.substr(0, slash));
  const std::string_view digits = text.substr(slash + 1);
  int length = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (!address.ok() || error != std::errc() || end != digits.data() + digits.size() || length < 0 ||
      length > address->bits())
    return wrong();
  return IpPrefix(*address, length);
}

bool IpPrefix::Contains(const IpAddress& address) const {
  if (address.is_v4() != address_.is_v4()) return false;
  for (int bit = 0; bit < length_; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((address.bytes()[bit / 8] & mask) != (address_.bytes()[bit / 8] & mask)) return false;
  }
  return true;
}

}  // namespace muster
