#include "trainer/text/tokenizer/wire_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/text/tokenizer/testing/wire_writer.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(WireReaderTest, GivesTheFieldsInOrder) {
  const std::string message = WireWriter().Int(1, -1).Float(2, 0.5f).Bytes(300, "abc").bytes();
  WireReader reader(message);
  auto field = *reader.Next();
  EXPECT_EQ(field->number, 1u);
  EXPECT_EQ(*field->Int("x"), -1);
  field = *reader.Next();
  EXPECT_EQ(*field->Float("x"), 0.5f);
  field = *reader.Next();
  EXPECT_EQ(field->number, 300u);
  EXPECT_EQ(*field->Bytes("x"), "abc");
  EXPECT_FALSE(reader.Next()->has_value());
}

TEST(WireReaderTest, AnotherTypeThanTheSchemaIsAnError) {
  const std::string message = WireWriter().Int(1, 1).bytes();
  const auto field = *WireReader(message).Next();
  EXPECT_TRUE(*field->Bool("flag"));
  EXPECT_THAT(field->Bytes("name").status().message(), HasSubstr("name"));
  EXPECT_THAT(field->Float("score").status().message(), HasSubstr("score"));
  const std::string text = WireWriter().Bytes(1, "x").bytes();
  const auto other = *WireReader(text).Next();
  EXPECT_FALSE(other->Int("count").ok());
  EXPECT_FALSE(other->Bool("flag").ok());
}

TEST(WireReaderTest, ReadsNothingBeyondTheEnd) {
  const std::string messages[] = {
      std::string(1, '\x80'),                                        // a tag without an end
      std::string(1, '\x08'),                                        // a number that is not there
      "\x0d\x01\x02",                                                // four bytes, but two
      "\x09\x01\x02",                                                // eight bytes
      "\x0a\x05\x61",                                                // a text of five bytes
      "\x0a" + WireWriter().Varint(std::uint64_t{1} << 63).bytes(),  // and of 2^63
      "\x0a" + WireWriter().Varint(~std::uint64_t{0}).bytes() + "abc",  // and of 2^64 - 1
      "\x08" + std::string(11, '\x80'),                                 // a number without an end
      "\x0b",                                                           // a group
      std::string("\x00\x00", 2),                                       // no number
      WireWriter().Varint(std::uint64_t{1} << 40).bytes() + "x",        // too large a number
  };
  for (const std::string& message : messages) {
    WireReader reader(message);
    const auto field = reader.Next();
    ASSERT_FALSE(field.ok());
    EXPECT_EQ(field.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace muster
