#include "common/net/dns_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Number(int value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value & 0xff)};
}

// In labels: "a.b" is \1a\1b\0.
std::string Name(const std::string& name) {
  std::string text;
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    text += static_cast<char>(end - begin);
    text += name.substr(begin, end - begin);
    begin = end + 1;
  }
  return text + '\0';
}

constexpr int kA = 1, kCname = 5, kAaaa = 28, kSrv = 33;
constexpr int kAnswer = 0x8180;

std::string Record(int type, const std::string& data) {
  return Name("_muster._tcp.example.org") + Number(type) + Number(1) + Number(0) + Number(60) +
         Number(static_cast<int>(data.size())) + data;
}

std::string Message(const std::vector<std::string>& records, int flags = kAnswer) {
  std::string text = Number(7) + Number(flags) + Number(0) +
                     Number(static_cast<int>(records.size())) + Number(0) + Number(0);
  for (const std::string& record : records) text += record;
  return text;
}

std::string Service(int priority, int weight, int port, const std::string& target) {
  return Record(kSrv, Number(priority) + Number(weight) + Number(port) + Name(target));
}

TEST(DnsServiceTest, ServersComeByPriorityAndTheHeavierOnesFirst) {
  const auto services = ParseServiceAnswer(
      Message({Service(10, 0, 7070, "c.example.org"), Service(0, 5, 7070, "b.example.org"),
               Record(kCname, Name("x.example.org")), Service(0, 60, 7071, "a.example.org"),
               Service(0, 0, 0, "")}));
  ASSERT_TRUE(services.ok()) << services.status().ToString();
  EXPECT_THAT(*services, ElementsAre(ServiceRecord{0, 60, 7071, "a.example.org"},
                                     ServiceRecord{0, 5, 7070, "b.example.org"},
                                     ServiceRecord{10, 0, 7070, "c.example.org"}));
}

TEST(DnsServiceTest, AddressesOfBothKindsAreRead) {
  const auto addresses = ParseAddressAnswer(
      Message({Record(kA, {10, 0, 0, 1}), Record(kAaaa, std::string(15, '\0') + '\1')}));
  ASSERT_TRUE(addresses.ok()) << addresses.status().ToString();
  EXPECT_THAT(*addresses, ElementsAre("10.0.0.1", "::1"));
  const auto none = ParseAddressAnswer(Message({}));
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(*none, IsEmpty());
}

TEST(DnsServiceTest, WhatIsNoWholeAnswerIsRefused) {
  const std::string good = Message({Service(0, 0, 7070, "a.example.org")});
  ASSERT_TRUE(ParseServiceAnswer(good).ok());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(ParseServiceAnswer(good.substr(0, size)).status().code(), StatusCode::kDataLoss)
        << size;
  const std::string wrong[] = {
      Message({}, 0x0100),                             // a question
      Message({}, kAnswer | 0x0200),                   // cut off
      Message({}, kAnswer | 3),                        // no such name
      Message({Service(0, 0, 0, "a.example.org")}),    // no port
      Message({Service(0, 0, 1, "a b.example.org")}),  // no host
      Message({Record(kSrv, Number(0))}),              // too short
      Message({Record(kSrv, Number(0) + Number(0) + Number(1) + Name("a") + "x")}),
      Message({Record(kSrv, Number(0) + Number(0) + Number(1) + "\xc0\xff")})};  // points outside
  for (const std::string& message : wrong)
    EXPECT_EQ(ParseServiceAnswer(message).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseAddressAnswer(Message({Record(kA, "abc")})).status().code(),
            StatusCode::kDataLoss);
}

TEST(DnsServiceTest, NamesHaveAServiceAndAProtocol) {
  EXPECT_TRUE(CheckServiceName("_muster._tcp.example.org").ok());
  EXPECT_TRUE(CheckServiceName("_a._tcp.local").ok());
  for (const char* name : {"", "example.org", "_muster.example.org", "_._tcp.x", "_muster._tcp.",
                           "_muster._tcp.a..b", "_muster._tcp.a b", "_muster._tcp.a/b"})
    EXPECT_EQ(CheckServiceName(name).code(), StatusCode::kInvalidArgument) << name;
}

}  // namespace
}  // namespace muster
