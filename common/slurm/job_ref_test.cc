#include "common/slurm/job_ref.h"

#include <gtest/gtest.h>

#include "common/slurm/allocation.h"

namespace muster::slurm {
namespace {

TEST(JobRef, IsANumberOrATaskOfAnArray) {
  EXPECT_EQ(JobRef(42).text(), "42");
  EXPECT_EQ(JobRef::Parse("42"), JobRef(42));
  EXPECT_FALSE(JobRef::Parse("42")->is_task());
  EXPECT_EQ(JobRef(ArrayTask{40, 0}).text(), "40_0");
  EXPECT_EQ(JobRef::Parse("40_0"), JobRef(ArrayTask{40, 0}));
  EXPECT_TRUE(JobRef::Parse("40_0")->is_task());
  for (const char* other :
       {"", "0", "first", "40_", "_1", "40_[2-5]", "40_1_2", "40+1", "-1", "4 "})
    EXPECT_FALSE(JobRef::Parse(other)) << other;
}

TEST(JobRef, NamesATaskOfAnArrayByItsArray) {
  Allocation allocation;
  allocation.job_id = 40;
  EXPECT_EQ(allocation.ref().text(), "40");
  allocation.array = ArrayTask{40, 3};
  EXPECT_EQ(allocation.ref().text(), "40_3");
}

}  // namespace
}  // namespace muster::slurm
