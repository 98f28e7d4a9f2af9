// The network interfaces of this host, and which address other nodes reach it at.
//
// A node must give others one numeric address. Guessing it from the host's name is how gangs come
// to hang: the name may not resolve, or resolve to loopback or to a bridge of containers. Here it
// is
//   1. the first usable one of what --interface names,
//   2. else the one that the kernel would send from towards a peer (a UDP socket that is connected
//      and asked; no packet leaves, no name is looked up),
//   3. else that of the interface of the default route,
//   4. else that of the fastest interface that leads out of the host.
// 2 to 4 never give an address of loopback, of the link, or of a bridge of containers or virtual
// machines; where nothing else is there and the peer is on this host, loopback it is.
//
// ChooseAddress is pure and says in a sentence why; the other functions look at the host: they take
// some microseconds and may be called by any thread, which they ask for its network namespace.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/net/ip_address.h"

namespace muster {

struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  std::vector<IpAddress> addresses;  // in the kernel's order
  int speed_mbps = 0;                // 0: the driver does not report it
  std::string pci_address;           // "0000:3b:00.0"; empty: no device of a PCI bus
};

// What --interface says: names of interfaces and networks, the one that is wanted most first.
struct InterfaceChoice {
  std::vector<std::string> wanted;  // "eth0", "10.1.0.0/16"; empty: none is named

  // "ib0", "ib0,eth0", "10.1.0.0/16". kInvalidArgument says which part is wrong.
  static Result<InterfaceChoice> Parse(std::string_view text);
};

// All that the choice depends on.
struct HostNetwork {
  std::vector<NetworkInterface> interfaces;
  std::string default_route;        // name of its interface; empty: no default route
  std::optional<IpAddress> peer;    // the peer that this host must be reachable for
  std::optional<IpAddress> source;  // what the kernel would send from towards it
};

struct ChosenAddress {
  IpAddress address;
  // The one that has the address, and after it others that --interface names; collectives may use
  // all of them. Empty: loopback.
  std::vector<std::string> interfaces;
  std::string why;  // "10.0.0.5 on eth0: ..."
};

// kNotFound: --interface names nothing usable, or nothing leads out of this host; the message lists
// what is there.
Result<ChosenAddress> ChooseAddress(const InterfaceChoice& choice, const HostNetwork& network);

// `sysfs` is /sys, or a tree of a test.
Result<std::vector<NetworkInterface>> ReadInterfaces(const std::string& sysfs = "/sys");

// The interface of the default route with the least metric in the text of /proc/net/route, else in
// that of /proc/net/ipv6_route. Empty: there is none. Pure.
std::string DefaultRouteInterface(std::string_view routes, std::string_view ipv6_routes);

// The address that the kernel would send from; nothing where no route leads to `peer`.
std::optional<IpAddress> SourceTowards(const IpAddress& peer);

// `peer` is an address of another node or of the coordinator, with or without a port ("10.0.0.1",
// "10.0.0.1:7700", "[fd00::1]:7700"), a Unix socket ("unix:/run/x"), or empty: unknown.
// kInvalidArgument: it is a name.
Result<std::optional<IpAddress>> ParsePeer(std::string_view peer);

Result<ChosenAddress> ChooseOwnAddress(const InterfaceChoice& choice, std::string_view peer);

// The same, the address alone.
Result<std::string> OwnAddress(const InterfaceChoice& choice, const std::string& peer);

// The name of the interface that has the address; empty: none has.
std::string InterfaceOf(const std::vector<NetworkInterface>& interfaces, const IpAddress& address);

// Whether an interface leads out of the host: no loopback, no bridge or virtual cable of containers
// or virtual machines, going by the names that their programs give them.
bool LeadsOut(const NetworkInterface& interface);

}  // namespace muster
