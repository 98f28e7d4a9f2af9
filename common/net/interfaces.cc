#include "common/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxAttributeBytes = 4096;
// Where a datagram would go to, if one were sent.
constexpr std::uint16_t kDiscardPort = 9;
// IFF_LOWER_UP of linux/if.h, which conflicts with net/if.h. Unlike IFF_RUNNING it is
// true at once when a cable is plugged in.
constexpr unsigned kCarrier = 1U << 16;

bool Usable(const IpAddress& address) {
  return !address.is_loopback() && !address.is_link_local() && !address.is_unspecified();
}

std::string ReadAttribute(const std::string& path) {
  auto text = ReadFile(path, kMaxAttributeBytes);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

void AddSysfsFacts(const std::string& sysfs, NetworkInterface* interface) {
  const std::string directory = sysfs + "/class/net/" + interface->name;
  const std::string speed = ReadAttribute(directory + "/speed");
  int mbps = 0;
  std::from_chars(speed.data(), speed.data() + speed.size(), mbps);
  // A driver that does not know it says -1, as a number of its own kind now and then.
  constexpr int kFastestMbps = 10'000'000;
  if (mbps > 0 && mbps <= kFastestMbps) interface->speed_mbps = mbps;
  std::error_code error;
  const fs::path device = fs::canonical(directory + "/device", error);
  // "0000:3b:00.0"; a virtual device's is another word.
  const std::string name = device.filename().string();
  if (!error && std::count(name.begin(), name.end(), ':') == 2) interface->pci_address = name;
}

std::optional<IpAddress> AddressOf(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET)
    return IpAddress::FromV4(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  if (address->sa_family == AF_INET6)
    return IpAddress::FromV6(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return std::nullopt;
}

// "eth0 (10.0.0.5), ib0 (down), lo (loopback)", for messages.
std::string Listing(const std::vector<NetworkInterface>& interfaces) {
  std::string text;
  for (const NetworkInterface& one : interfaces) {
    std::string state = one.up ? "" : "down";
    for (const IpAddress& address : one.addresses)
      if (!address.is_link_local()) state += (state.empty() ? "" : " ") + address.ToString();
    text +=
        (text.empty() ? "" : ", ") + one.name + " (" + (state.empty() ? "no address" : state) + ")";
  }
  return text.empty() ? "no interface" : text;
}

// The address of an interface that fits best: the one the kernel would send from, else of the
// peer's family, else IPv4. `any` also takes loopback, for interfaces that were asked for by name.
std::optional<IpAddress> BestAddress(const NetworkInterface& interface, const HostNetwork& network,
                                     bool any, const IpPrefix* within) {
  std::vector<IpAddress> fitting;
  for (const IpAddress& address : interface.addresses)
    if ((Usable(address) || (any && address.is_loopback())) &&
        (within == nullptr || within->Contains(address)))
      fitting.push_back(address);
  if (fitting.empty()) return std::nullopt;
  if (network.source && std::find(fitting.begin(), fitting.end(), *network.source) != fitting.end())
    return network.source;
  const bool v4 = !network.peer || network.peer->is_v4();
  const auto of_family = std::find_if(fitting.begin(), fitting.end(),
                                      [&](const IpAddress& one) { return one.is_v4() == v4; });
  return of_family != fitting.end() ? *of_family : fitting.front();
}

ChosenAddress Chosen(const IpAddress& address, const std::string& interface,
                     const std::string& why) {
  return {.address = address,
          .interfaces = {interface},
          .why = address.ToString() + " on " + interface + ": " + why};
}

Result<ChosenAddress> ChooseWanted(const InterfaceChoice& choice, const HostNetwork& network) {
  std::optional<ChosenAddress> chosen;
  for (const std::string& wanted : choice.wanted) {
    const auto prefix = IpPrefix::Parse(wanted);
    for (const NetworkInterface& one : network.interfaces) {
      if (!one.up || (!prefix.ok() && one.name != wanted)) continue;
      const auto address = BestAddress(one, network, true, prefix.ok() ? &*prefix : nullptr);
      if (!address) continue;
      if (!chosen) {
        chosen = Chosen(*address, one.name, "asked for by --interface " + wanted);
      } else if (std::find(chosen->interfaces.begin(), chosen->interfaces.end(), one.name) ==
                 chosen->interfaces.end()) {
        chosen->interfaces.push_back(one.name);
      }
    }
  }
  if (chosen) return *chosen;
  std::string all;
  for (const std::string& wanted : choice.wanted) all += (all.empty() ? "" : ",") + wanted;
  return NotFound("--interface " + all +
                  " names no interface of this node that is up and has an address; there is " +
                  Listing(network.interfaces));
}

std::optional<ChosenAddress> ChooseTowardsPeer(const HostNetwork& network) {
  if (!network.peer || network.peer->is_loopback() || !network.source || !Usable(*network.source))
    return std::nullopt;
  const std::string name = InterfaceOf(network.interfaces, *network.source);
  const auto interface =
      std::find_if(network.interfaces.begin(), network.interfaces.end(),
                   [&](const NetworkInterface& one) { return one.name == name; });
  if (interface == network.interfaces.end()) return std::nullopt;
  // An address of the host itself may sit on loopback where routes are announced by the host; a
  // bridge of containers leads to no other host.
  if (!interface->loopback && !LeadsOut(*interface)) return std::nullopt;
  const std::string peer = network.peer->ToString();
  return Chosen(*network.source, name,
                *network.source == *network.peer
                    ? "the address of this node at which " + peer + " was named"
                    : "the address from which this node reaches " + peer);
}

std::optional<ChosenAddress> ChooseOutward(const HostNetwork& network) {
  std::optional<ChosenAddress> best;
  int best_speed = -1;
  for (const NetworkInterface& one : network.interfaces) {
    if (!one.up || !LeadsOut(one)) continue;
    const auto address = BestAddress(one, network, false, nullptr);
    if (!address) continue;
    if (one.name == network.default_route)
      return Chosen(*address, one.name, "the interface of the default route");
    if (one.speed_mbps <= best_speed) continue;
    best_speed = one.speed_mbps;
    best = Chosen(*address, one.name,
                  "the fastest interface that leads out of this node, which has no default route "
                  "by another");
  }
  return best;
}

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t begin = line.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

std::uint64_t Number(const std::string& text, int base) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Where a table of routes has what, counted from 0.
struct RouteColumns {
  std::size_t count, name, network, prefix, metric, flags;
  int metric_base;
};
constexpr RouteColumns kRoutes = {11, 0, 1, 7, 6, 3, 10};
constexpr RouteColumns kIpv6Routes = {10, 9, 0, 1, 5, 8, 16};

std::string LeastDefaultRoute(std::string_view table, const RouteColumns& columns) {
  constexpr std::uint64_t kReject = 0x200;  // RTF_REJECT: says that nothing leads there
  std::string name;
  std::uint64_t least = 0;
  while (!table.empty()) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    const std::vector<std::string> words = Words(table.substr(0, end));
    table.remove_prefix(std::min(end + 1, table.size()));
    if (words.size() < columns.count) continue;
    const auto zero = [](const std::string& text) {
      return text.find_first_not_of('0') == std::string::npos;
    };
    const bool is_default = zero(words[columns.network]) && zero(words[columns.prefix]);
    if (!is_default || (Number(words[columns.flags], 16) & kReject) != 0) continue;
    const std::uint64_t metric = Number(words[columns.metric], columns.metric_base);
    if (!name.empty() && metric >= least) continue;
    name = words[columns.name];
    least = metric;
  }
  return name;
}

// The route tables are those of the calling thread's namespace, as getifaddrs and sockets are.
std::string ReadRoutes(const char* file) {
  const auto text = ReadFile(std::string("/proc/thread-self/net/") + file, 4 << 20);
  return text.ok() ? *text : "";
}

}  // namespace

Result<InterfaceChoice> InterfaceChoice::Parse(std::string_view text) {
  InterfaceChoice choice;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string part(text.substr(0, comma));
    if (part.find('/') != std::string::npos) {
      MUSTER_RETURN_IF_ERROR(IpPrefix::Parse(part).status());
    } else if (part.empty() || part.size() >= IFNAMSIZ ||
               part.find_first_of(" \t:=^*") != std::string::npos) {
      return InvalidArgument("'" + part +
                             "' is neither an interface's name nor a network; write eth0, or "
                             "10.1.0.0/16, or several with commas, the one wanted most first");
    }
    choice.wanted.push_back(part);
    if (comma == text.size()) return choice;
    text.remove_prefix(comma + 1);
  }
}

Result<ChosenAddress> ChooseAddress(const InterfaceChoice& choice, const HostNetwork& network) {
  if (!choice.wanted.empty()) return ChooseWanted(choice, network);
  if (const auto chosen = ChooseTowardsPeer(network)) return *chosen;
  if (const auto chosen = ChooseOutward(network)) return *chosen;
  if (!network.peer || network.peer->is_loopback()) {
    const IpAddress loopback = *IpAddress::Parse("127.0.0.1");
    return ChosenAddress{.address = loopback,
                         .interfaces = {},
                         .why =
                             "127.0.0.1: no interface leads out of this node, and all that is "
                             "known of is on this node"};
  }
  return NotFound("no address of this node reaches " + network.peer->ToString() + "; there is " +
                  Listing(network.interfaces) + "; name the right interface with --interface");
}

Result<std::vector<NetworkInterface>> ReadInterfaces(const std::string& sysfs) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return ErrnoStatus(errno, "list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(head, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  std::map<std::string, std::size_t> places;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    const auto [place, is_new] = places.try_emplace(entry->ifa_name, interfaces.size());
    if (is_new) {
      interfaces.push_back(
          {.name = entry->ifa_name,
           .up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & kCarrier) != 0,
           .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
      AddSysfsFacts(sysfs, &interfaces.back());
    }
    if (const auto address = AddressOf(entry->ifa_addr))
      interfaces[place->second].addresses.push_back(*address);
  }
  return interfaces;
}

std::string DefaultRouteInterface(std::string_view routes, std::string_view ipv6_routes) {
  const std::string name = LeastDefaultRoute(routes, kRoutes);
  return name.empty() ? LeastDefaultRoute(ipv6_routes, kIpv6Routes) : name;
}

std::optional<IpAddress> SourceTowards(const IpAddress& peer) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (peer.is_v4()) {
    auto& to = reinterpret_cast<sockaddr_in&>(storage);
    to.sin_family = AF_INET;
    to.sin_port = htons(kDiscardPort);
    std::copy_n(peer.bytes(), 4, reinterpret_cast<std::uint8_t*>(&to.sin_addr));
    length = sizeof to;
  } else {
    auto& to = reinterpret_cast<sockaddr_in6&>(storage);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(kDiscardPort);
    std::copy_n(peer.bytes(), 16, reinterpret_cast<std::uint8_t*>(&to.sin6_addr));
    length = sizeof to;
  }
  const UniqueFd fd(::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  auto* generic = reinterpret_cast<sockaddr*>(&storage);
  if (!fd.valid() || ::connect(fd.get(), generic, length) != 0) return std::nullopt;
  length = sizeof storage;
  if (::getsockname(fd.get(), generic, &length) != 0) return std::nullopt;
  return AddressOf(generic);
}

Result<std::optional<IpAddress>> ParsePeer(std::string_view peer) {
  if (peer.empty() || peer.starts_with("unix:") || peer.starts_with("/"))
    return std::optional<IpAddress>();
  if (peer.starts_with('[')) {
    const std::size_t end = std::min(peer.find(']'), peer.size() - 1);
    MUSTER_ASSIGN_OR_RETURN(const IpAddress address, IpAddress::Parse(peer.substr(0, end + 1)));
    return std::optional<IpAddress>(address);
  }
  // One colon sets a port off; more of them are an IPv6 address.
  if (std::count(peer.begin(), peer.end(), ':') == 1) peer = peer.substr(0, peer.find(':'));
  MUSTER_ASSIGN_OR_RETURN(const IpAddress address, IpAddress::Parse(peer));
  return std::optional<IpAddress>(address);
}

Result<ChosenAddress> ChooseOwnAddress(const InterfaceChoice& choice, std::string_view peer) {
  HostNetwork network;
  MUSTER_ASSIGN_OR_RETURN(network.peer, ParsePeer(peer));
  MUSTER_ASSIGN_OR_RETURN(network.interfaces, ReadInterfaces());
  network.default_route = DefaultRouteInterface(ReadRoutes("route"), ReadRoutes("ipv6_route"));
  if (network.peer) network.source = SourceTowards(*network.peer);
  return ChooseAddress(choice, network);
}

Result<std::string> OwnAddress(const InterfaceChoice& choice, const std::string& peer) {
  MUSTER_ASSIGN_OR_RETURN(const ChosenAddress chosen, ChooseOwnAddress(choice, peer));
  return chosen.address.ToString();
}

std::string InterfaceOf(const std::vector<NetworkInterface>& interfaces, const IpAddress& address) {
  for (const NetworkInterface& one : interfaces)
    if (std::find(one.addresses.begin(), one.addresses.end(), address) != one.addresses.end())
      return one.name;
  return "";
}

bool LeadsOut(const NetworkInterface& interface) {
  static const std::vector<std::string> kInsideTheHost = {
      "docker", "virbr",   "veth",   "vnet",      "lxc",       "lxd",   "podman", "cni",
      "cali",   "flannel", "cilium", "kube-ipvs", "nodelocal", "vmnet", "ifb",    "muster0"};
  const std::string& name = interface.name;
  // Docker's bridges of its own networks; others that begin so may be the host's way out.
  const bool docker_bridge = name.starts_with("br-") && name.size() == 15 &&
                             name.find_first_not_of("0123456789abcdef", 3) == std::string::npos;
  return !interface.loopback && !docker_bridge &&
         std::none_of(kInsideTheHost.begin(), kInsideTheHost.end(),
                      [&](const std::string& begin) { return name.starts_with(begin); });
}

}  // namespace muster
