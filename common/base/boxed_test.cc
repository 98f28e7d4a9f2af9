#include "common/base/boxed.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/on_demand.h"

namespace muster {
namespace {

TEST(BoxedTest, ACopyHasAValueOfItsOwn) {
  Boxed<std::string> box;
  EXPECT_FALSE(box.has_value());
  box.emplace() = "first";
  Boxed<std::string> copy = box;
  *copy = "second";
  EXPECT_EQ(*box, "first");
  box = copy;
  copy.reset();
  EXPECT_FALSE(copy);
  EXPECT_EQ(*box, "second");
}

TEST(OnDemandTest, ReadsAsADefaultUntilItIsChanged) {
  OnDemand<std::string> text;
  const OnDemand<std::string> other;
  EXPECT_TRUE(text->empty());
  text.Mutable() = "changed";
  text.Mutable() += " twice";
  EXPECT_EQ(*text, "changed twice");
  EXPECT_TRUE(other->empty()) << "the default is shared, the value is not";
}

}  // namespace
}  // namespace muster
