#include "trainer/train/retained_segments.h"

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

TEST(RetainedSegments, WhatIsHandedOverIsWritableWhereItsDescriptorIs) {
  const std::unique_ptr<Segment> mine = Make("a"), other = Make("b");
  RetainedSegments retained;
  ASSERT_TRUE(retained.Add(HeldSegment{"a", Again(*mine, O_RDWR)}).ok());
  ASSERT_TRUE(retained.Add(HeldSegment{"b", Again(*other, O_RDONLY)}).ok());
  ASSERT_EQ(retained.segments().size(), 2u);
  EXPECT_TRUE(retained.segments()[0]->writable());
  EXPECT_FALSE(retained.segments()[1]->writable());
}

// The guardian sends all that it holds before each assignment.
TEST(RetainedSegments, ANameThatIsHereIsNotMappedAgain) {
  RetainedSegments retained;
  Segment* const made = retained.Add(Make("a"));
  ASSERT_TRUE(retained.Add(HeldSegment{"a", Again(*made, O_RDONLY)}).ok());
  EXPECT_THAT(retained.readable(), ElementsAre(made));
}

TEST(RetainedSegments, WhatIsNoSegmentIsRefusedByName) {
  RetainedSegments retained;
  const Status added =
      retained.Add(HeldSegment{"odd", UniqueFd(::memfd_create("odd", MFD_CLOEXEC))});
  EXPECT_EQ(added.code(), StatusCode::kDataLoss);
  EXPECT_THAT(added.message(), HasSubstr("odd"));
  EXPECT_TRUE(retained.readable().empty());
}

TEST(RetainedSegments, OthersThanThoseInUseAreLetGoByName) {
  RetainedSegments retained;
  for (const char* name : {"a", "b", "c"}) retained.Add(Make(name));
  EXPECT_THAT(retained.KeepOnly({"b", "of another node"}), ElementsAre("a", "c"));
  ASSERT_EQ(retained.segments().size(), 1u);
  EXPECT_EQ(retained.segments()[0]->spec().name, "b");
}

TEST(RetainedSegments, WhatIsTakenOutIsGone) {
  RetainedSegments retained;
  for (const char* name : {"a", "b", "c"}) retained.Add(Make(name));
  const auto taken = retained.TakeOut([](const Segment& each) { return each.spec().name != "b"; });
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0]->spec().name, "a");
  EXPECT_EQ(taken[1]->spec().name, "c");
  EXPECT_EQ(retained.segments().size(), 1u);
}

}  // namespace
}  // namespace muster
