// The bytes; that TensorBoard reads them is tested with its own package (tests/integration).
#include "trainer/formats/event_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace muster {
namespace {

// RFC 3720, appendix B.4.
TEST(EventRecord, ChecksumsAreThoseOfTheStandard) {
  std::string ascending(32, '\0');
  for (int i = 0; i < 32; ++i) ascending[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(EventRecord, ARecordIsLengthAndPayloadEachWithItsChecksum) {
  const std::string record = EventRecord("abc");
  ASSERT_EQ(record.size(), 8 + 4 + 3 + 4u);
  std::uint64_t length = 0;
  std::uint32_t of_length = 0, of_payload = 0;
  std::memcpy(&length, record.data(), 8);
  std::memcpy(&of_length, record.data() + 8, 4);
  std::memcpy(&of_payload, record.data() + 15, 4);
  EXPECT_EQ(length, 3u);
  EXPECT_EQ(of_length, MaskedCrc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 3), "abc");
  EXPECT_EQ(of_payload, MaskedCrc32c("abc"));
}

TEST(EventRecord, AScalarIsAFloatUnderItsTag) {
  const std::string event = ScalarsEvent(1.5, 300, {{"a", 2.0}});
  const std::string wall_time("\x09\x00\x00\x00\x00\x00\x00\xf8\x3f", 9);
  const std::string step("\x10\xac\x02", 3);
  const std::string value(
      "\x0a\x01"
      "a"
      "\x15\x00\x00\x00\x40",
      8);
  EXPECT_EQ(event, wall_time + step + "\x2a\x0a" + "\x0a\x08" + value);
}

TEST(EventRecord, WhatIsNotFiniteIsKept) {
  const std::string event = ScalarsEvent(0, 1, {{"a", std::numeric_limits<double>::infinity()}});
  EXPECT_TRUE(event.ends_with(std::string("\x15\x00\x00\x80\x7f", 5)));
}

}  // namespace
}  // namespace muster
