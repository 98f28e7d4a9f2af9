// What a name server answers about the coordinators of a cluster.
#include "common/net/dns_service.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view message = fuzz::TextOf(data, size);
  if (const auto services = ParseServiceAnswer(message); services.ok())
    for (const ServiceRecord& service : *services)
      fuzz::Require(service.port != 0 && !service.target.empty() && service.target.size() <= 255,
                    "each server has a name and a port");
  if (const auto addresses = ParseAddressAnswer(message); addresses.ok())
    for (const std::string& address : *addresses)
      fuzz::Require(address.find_first_not_of("0123456789abcdef.:") == std::string::npos,
                    "an address is one in text");
  return 0;
}
