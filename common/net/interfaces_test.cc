#include "common/net/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

IpAddress Ip(const std::string& text) { return *IpAddress::Parse(text); }

NetworkInterface Up(const std::string& name, const std::vector<std::string>& addresses,
                    int speed_mbps = 0) {
  NetworkInterface interface { .name = name, .up = true, .speed_mbps = speed_mbps };
  for (const std::string& one : addresses) interface.addresses.push_back(Ip(one));
  return interface;
}

// A login network, a fast one beside it, and a bridge of containers.
HostNetwork TwoNetworks() {
  NetworkInterface lo = Up("lo", {"127.0.0.1", "::1"});
  lo.loopback = true;
  return {.interfaces = {lo, Up("docker0", {"172.17.0.1"}), Up("eth0", {"192.168.7.4"}, 1000),
                         Up("ib0", {"fe80::9", "10.1.0.4", "fd00:1::4"}, 200'000)},
          .default_route = "eth0"};
}

InterfaceChoice Wanted(const std::string& text) { return *InterfaceChoice::Parse(text); }

TEST(InterfaceChoice, ReadsNamesAndNetworksInTheirOrder) {
  EXPECT_THAT(Wanted("ib0,10.1.0.0/16,eth0").wanted, ElementsAre("ib0", "10.1.0.0/16", "eth0"));
  for (const char* text :
       {"", "eth0,", "=eth0", "^docker0", "eth0 eth1", "10.1.0.0/40", "ib*", "sixteen-characters"})
    EXPECT_FALSE(InterfaceChoice::Parse(text).ok()) << text;
}

TEST(ChooseAddress, AnInterfaceThatIsNamedWins) {
  HostNetwork network = TwoNetworks();
  network.peer = Ip("192.168.7.1");
  network.source = Ip("192.168.7.4");
  const auto chosen = ChooseAddress(Wanted("ib0"), network);
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen->address, Ip("10.1.0.4"));
  EXPECT_THAT(chosen->interfaces, ElementsAre("ib0"));
  EXPECT_EQ(chosen->why, "10.1.0.4 on ib0: asked for by --interface ib0");
  EXPECT_EQ(ChooseAddress(Wanted("10.1.0.0/16"), network)->address, Ip("10.1.0.4"));
  EXPECT_EQ(ChooseAddress(Wanted("fd00:1::/64"), network)->address, Ip("fd00:1::4"));
  EXPECT_EQ(ChooseAddress(Wanted("docker0"), network)->address, Ip("172.17.0.1"));
}

TEST(ChooseAddress, TheFirstOfSeveralThatIsUpGivesTheAddressAndAllAreUsed) {
  HostNetwork network = TwoNetworks();
  EXPECT_THAT(ChooseAddress(Wanted("ib0,eth0,ib0"), network)->interfaces,
              ElementsAre("ib0", "eth0"));
  network.interfaces[3].up = false;
  const auto chosen = ChooseAddress(Wanted("ib0,eth0"), network);
  EXPECT_EQ(chosen->address, Ip("192.168.7.4"));
  EXPECT_THAT(chosen->interfaces, ElementsAre("eth0"));
}

TEST(ChooseAddress, AnInterfaceThatIsNotThereIsAnErrorThatListsThoseThatAre) {
  HostNetwork network = TwoNetworks();
  network.interfaces[3].up = false;
  network.interfaces[3].addresses.clear();
  const auto chosen = ChooseAddress(Wanted("ib0,ib7"), network);
  EXPECT_EQ(chosen.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(chosen.status().message(),
            "--interface ib0,ib7 names no interface of this node that is up and has an address; "
            "there is lo (127.0.0.1 ::1), docker0 (172.17.0.1), eth0 (192.168.7.4), ib0 (down)");
}

TEST(ChooseAddress, WithoutANameItIsTheOneThatReachesThePeer) {
  HostNetwork network = TwoNetworks();
  network.peer = Ip("10.1.0.1");
  network.source = Ip("10.1.0.4");
  const auto chosen = ChooseAddress({}, network);
  EXPECT_EQ(chosen->address, Ip("10.1.0.4"));
  EXPECT_THAT(chosen->why, HasSubstr("from which this node reaches 10.1.0.1"));
}

TEST(ChooseAddress, APeerOnABridgeOfContainersDoesNotMakeTheBridgeReachable) {
  HostNetwork network = TwoNetworks();
  network.peer = Ip("172.17.0.2");
  network.source = Ip("172.17.0.1");
  EXPECT_EQ(ChooseAddress({}, network)->address, Ip("192.168.7.4"));
  network.peer = Ip("169.254.0.2");
  network.source = Ip("169.254.0.1");
  EXPECT_EQ(ChooseAddress({}, network)->address, Ip("192.168.7.4"));
}

TEST(ChooseAddress, AnAddressThatTheHostItselfAnnouncesMaySitOnLoopback) {
  HostNetwork network = TwoNetworks();
  network.interfaces[0].addresses.push_back(Ip("10.9.0.1"));
  network.peer = Ip("10.9.0.2");
  network.source = Ip("10.9.0.1");
  EXPECT_EQ(ChooseAddress({}, network)->address, Ip("10.9.0.1"));
}

TEST(ChooseAddress, APeerOnThisHostDecidesNothingSoTheDefaultRouteDoes) {
  HostNetwork network = TwoNetworks();
  network.peer = Ip("127.0.0.1");
  network.source = Ip("127.0.0.1");
  const auto chosen = ChooseAddress({}, network);
  EXPECT_EQ(chosen->address, Ip("192.168.7.4"));
  EXPECT_EQ(chosen->why, "192.168.7.4 on eth0: the interface of the default route");
}

TEST(ChooseAddress, WithoutADefaultRouteTheFastestWayOutIsTaken) {
  HostNetwork network = TwoNetworks();
  network.default_route = "docker0";
  EXPECT_EQ(ChooseAddress({}, network)->address, Ip("10.1.0.4"));
  network.peer = Ip("fd00:1::9");
  EXPECT_EQ(ChooseAddress({}, network)->address, Ip("fd00:1::4"));
}

TEST(ChooseAddress, LoopbackIsForNodesWithoutPeersAlone) {
  HostNetwork network = TwoNetworks();
  network.interfaces.resize(2);
  network.default_route.clear();
  const auto alone = ChooseAddress({}, network);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_EQ(alone->address, Ip("127.0.0.1"));
  EXPECT_THAT(alone->interfaces, IsEmpty());
  network.peer = Ip("10.1.0.1");
  const auto cut_off = ChooseAddress({}, network);
  EXPECT_EQ(cut_off.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(cut_off.status().message(), HasSubstr("no address of this node reaches 10.1.0.1"));
}

TEST(LeadsOut, GoesByTheNamesThatContainersAndVirtualMachinesUse) {
  for (const char* name : {"eth0", "enp3s0f1", "ib0", "bond0", "br0", "br-ex", "tap0", "wlan0"})
    EXPECT_TRUE(LeadsOut(Up(name, {}))) << name;
  for (const char* name : {"docker0", "br-0123456789ab", "virbr0", "veth12ab", "cni0", "cali12"})
    EXPECT_FALSE(LeadsOut(Up(name, {}))) << name;
}

constexpr char kHeadings[] =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
constexpr char kNoIpv6Default[] =
    "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";

TEST(DefaultRouteInterface, IsTheOneOfTheLeastMetric) {
  const std::string routes = std::string(kHeadings) +
                             "wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
                             "eth0\t00000000\t0107A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                             "ib0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
  EXPECT_EQ(DefaultRouteInterface(routes, ""), "eth0");
  EXPECT_EQ(DefaultRouteInterface(kHeadings, ""), "");
}

TEST(DefaultRouteInterface, AnUnreachableRouteOfIpv6IsNone) {
  EXPECT_EQ(DefaultRouteInterface(kHeadings, kNoIpv6Default), "");
  const std::string routes = std::string(kNoIpv6Default) +
                             "00000000000000000000000000000000 00 "
                             "00000000000000000000000000000000 00 "
                             "fe800000000000000000000000000001 00000400 00000001 00000000 "
                             "00000003     eth1\n";
  EXPECT_EQ(DefaultRouteInterface(kHeadings, routes), "eth1");
}

TEST(ParsePeer, TakesAPortOffAndRefusesNames) {
  EXPECT_EQ(**ParsePeer("10.0.0.1"), Ip("10.0.0.1"));
  EXPECT_EQ(**ParsePeer("10.0.0.1:7700"), Ip("10.0.0.1"));
  EXPECT_EQ(**ParsePeer("[fd00::1]:7700"), Ip("fd00::1"));
  EXPECT_EQ(**ParsePeer("fd00::1"), Ip("fd00::1"));
  EXPECT_FALSE(ParsePeer("")->has_value());
  EXPECT_FALSE(ParsePeer("unix:/run/muster/socket")->has_value());
  for (const char* text : {"head-node", "head-node:7700", "[fd00::1", "10.0.0.1:7700:1"})
    EXPECT_EQ(ParsePeer(text).status().code(), StatusCode::kInvalidArgument) << text;
}

TEST(ReadInterfaces, FindsLoopbackAndReadsSpeedAndDevice) {
  const TempDirForTest sysfs;
  namespace fs = std::filesystem;
  fs::create_directories(sysfs / "class/net/lo");
  fs::create_directories(sysfs / "devices/pci0000:3a/0000:3b:00.0");
  fs::create_directory_symlink("../../../devices/pci0000:3a/0000:3b:00.0",
                               sysfs / "class/net/lo/device");
  std::ofstream(sysfs / "class/net/lo/speed") << "200000\n";
  const auto interfaces = ReadInterfaces(sysfs.path());
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().message();
  const auto lo = std::find_if(interfaces->begin(), interfaces->end(),
                               [](const NetworkInterface& one) { return one.name == "lo"; });
  ASSERT_NE(lo, interfaces->end());
  EXPECT_TRUE(lo->loopback);
  EXPECT_EQ(lo->speed_mbps, 200000);
  EXPECT_EQ(lo->pci_address, "0000:3b:00.0");
}

}  // namespace
}  // namespace muster
