#include "trainer/data/npy_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPlain[] = "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }";

// A file's start: magic, version, length and dictionary.
std::string Start(int major, const std::string& dictionary) {
  std::string start = "\x93NUMPY";
  start += static_cast<char>(major);
  start += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    start += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  return start + dictionary;
}

std::string Refusal(const std::string& start) {
  const auto header = ParseNpyHeader(start);
  return header.ok() ? "" : header.status().message();
}

TEST(NpyHeaderTest, ReadsEachVersionThatNumpyWrites) {
  for (const int major : {1, 2, 3}) {
    const auto header = ParseNpyHeader(Start(major, kPlain) + "data");
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->descr, "<u2");
    EXPECT_FALSE(header->fortran_order);
    EXPECT_THAT(header->shape, ElementsAre(3, 4));
    EXPECT_EQ(header->data_begin, (major == 1 ? 10 : 12) + std::string(kPlain).size());
  }
}

TEST(NpyHeaderTest, ReadsOtherOrdersQuotesAndShapes) {
  const auto header = ParseNpyHeader(
      Start(1, "{\"shape\": (7,), \"fortran_order\": True, \"descr\": \"|b1\"}  \n"));
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->descr, "|b1");
  EXPECT_TRUE(header->fortran_order);
  EXPECT_THAT(header->shape, ElementsAre(7));
  EXPECT_THAT(
      ParseNpyHeader(Start(1, "{'descr': '<i8', 'fortran_order': False, 'shape': ()}"))->shape,
      IsEmpty());
}

TEST(NpyHeaderTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal("PK\x03\x04 and so on"), HasSubstr("another magic"));
  EXPECT_THAT(Refusal(""), HasSubstr("another magic"));
  EXPECT_THAT(Refusal("\x93NUMPY\x01"), HasSubstr("ends within"));
  EXPECT_THAT(Refusal(Start(1, kPlain).substr(0, 40)), HasSubstr("ends within"));
  EXPECT_THAT(Refusal(Start(4, kPlain)), HasSubstr("version 4.0"));
  EXPECT_THAT(Refusal(Start(2, std::string(70'000, ' '))), HasSubstr("70000 bytes"));
  EXPECT_THAT(Refusal(Start(1, "[1, 2]")), HasSubstr("no dictionary"));
  EXPECT_THAT(Refusal(Start(1, "{'descr': '<u2'")), HasSubstr("no dictionary"));
  EXPECT_THAT(Refusal(Start(1, "{'descr': '<u2', ")), HasSubstr("no dictionary"));
  EXPECT_THAT(Refusal(Start(1, "{'descr': '<u2'}")), HasSubstr("without"));
  EXPECT_THAT(Refusal(Start(1, "{'descr': [('a', '<u2')]}")), HasSubstr("records"));
  EXPECT_THAT(Refusal(Start(1, "{'fortran_order': 0}")), HasSubstr("fortran_order"));
  EXPECT_THAT(Refusal(Start(1, "{'shape': (3, x)}")), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Start(1, "{'shape': (3, 99999999999999999999)}")), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Start(1, "{'colour': 'red'}")), HasSubstr("'colour'"));
}

}  // namespace
}  // namespace muster
