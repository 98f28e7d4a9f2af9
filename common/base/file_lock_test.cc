#include "common/base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <string>
#include <thread>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

// Another opening of the file, as another process would have.
UniqueFd OpenAgain(const UniqueFd& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

TEST(LockFile, IsRefusedToASecondHolder) {
  const UniqueFd first(::memfd_create("lock", MFD_CLOEXEC));
  const UniqueFd second = OpenAgain(first);
  EXPECT_TRUE(*LockFile(first.get()));
  EXPECT_FALSE(*LockFile(second.get(), std::chrono::milliseconds(30)));
  EXPECT_FALSE(LockFile(-1).ok());
}

// A worker that was killed still had its lock when the next one came, which ended.
TEST(LockFile, IsWaitedForWhileItsHolderEnds) {
  UniqueFd first(::memfd_create("lock", MFD_CLOEXEC));
  const UniqueFd second = OpenAgain(first);
  ASSERT_TRUE(*LockFile(first.get()));
  std::thread ending([&first] {
    (void)::poll(nullptr, 0, 100);
    first.reset();
  });
  EXPECT_TRUE(*LockFile(second.get(), std::chrono::seconds(20)));
  ending.join();
}

}  // namespace
}  // namespace muster
