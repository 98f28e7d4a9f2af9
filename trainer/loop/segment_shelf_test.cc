#include "trainer/loop/segment_shelf.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SegmentSpec SpecOf(const std::string& name) {
  return {.name = name, .arrays = {{"u/weight", ElementType::kFloat32, 4, nullptr, {}}}};
}

std::unique_ptr<Segment> Make(const std::string& name) {
  return *Segment::Create(SpecOf(name), 1, /*touch=*/false);
}

UniqueFd Again(const Segment& segment, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(segment.fd());
  return UniqueFd(::open(path.c_str(), flags | O_CLOEXEC));
}

TEST(SegmentShelf, WhatIsHandedOverIsWritableWhereItsDescriptorIs) {
  const std::unique_ptr<Segment> mine = Make("a"), other = Make("b");
  SegmentShelf shelf;
  ASSERT_TRUE(shelf.Add(HeldSegment{"a", Again(*mine, O_RDWR)}).ok());
  ASSERT_TRUE(shelf.Add(HeldSegment{"b", Again(*other, O_RDONLY)}).ok());
  ASSERT_EQ(shelf.segments().size(), 2u);
  EXPECT_TRUE(shelf.segments()[0]->writable());
  EXPECT_FALSE(shelf.segments()[1]->writable());
}

// The guardian sends all that it holds before each assignment.
TEST(SegmentShelf, ANameThatIsHereIsNotMappedAgain) {
  SegmentShelf shelf;
  Segment* const made = shelf.Add(Make("a"));
  ASSERT_TRUE(shelf.Add(HeldSegment{"a", Again(*made, O_RDONLY)}).ok());
  EXPECT_THAT(shelf.readable(), ElementsAre(made));
}

TEST(SegmentShelf, WhatIsNoSegmentIsRefusedByName) {
  SegmentShelf shelf;
  const Status added = shelf.Add(HeldSegment{"odd", UniqueFd(::memfd_create("odd", MFD_CLOEXEC))});
  EXPECT_EQ(added.code(), StatusCode::kDataLoss);
  EXPECT_THAT(added.message(), HasSubstr("odd"));
  EXPECT_TRUE(shelf.readable().empty());
}

TEST(SegmentShelf, OthersThanThoseInUseAreLetGoByName) {
  SegmentShelf shelf;
  for (const char* name : {"a", "b", "c"}) shelf.Add(Make(name));
  EXPECT_THAT(shelf.KeepOnly({"b", "of another node"}), ElementsAre("a", "c"));
  ASSERT_EQ(shelf.segments().size(), 1u);
  EXPECT_EQ(shelf.segments()[0]->spec().name, "b");
}

TEST(SegmentShelf, WhatIsTakenOutIsGone) {
  SegmentShelf shelf;
  for (const char* name : {"a", "b", "c"}) shelf.Add(Make(name));
  const auto taken = shelf.TakeOut([](const Segment& each) { return each.spec().name != "b"; });
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0]->spec().name, "a");
  EXPECT_EQ(taken[1]->spec().name, "c");
  EXPECT_EQ(shelf.segments().size(), 1u);
}

}  // namespace
}  // namespace muster
