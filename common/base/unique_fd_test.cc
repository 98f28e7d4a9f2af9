#include "common/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace muster {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwnsAndNothingElse) {
  int number = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = fd.get();
    UniqueFd moved = std::move(fd);
    EXPECT_FALSE(fd.valid());
    EXPECT_EQ(moved.get(), number);
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(UniqueFd, AssignmentClosesTheFormerOne) {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int former = fd.get();
  fd = UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(IsOpen(former));
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(fd.valid() && IsOpen(fd.get()));
}

TEST(UniqueFd, ReleaseGivesItAway) {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = fd.release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(IsOpen(number));
  ::close(number);
}

}  // namespace
}  // namespace muster
