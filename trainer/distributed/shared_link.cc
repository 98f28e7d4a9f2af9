#include "trainer/distributed/shared_link.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace muster {
namespace {

constexpr std::size_t kLargePage = 2 << 20;

Result<std::shared_ptr<std::byte>> Map(int flags, int fd, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted(
        ErrnoStatus(errno, "mapping " + std::to_string(bytes) + " bytes").message());
  }
  // A wish: the system decides whether it has large pages for this kind of memory.
  if (bytes >= kLargePage) (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                    [bytes](std::byte* data) { ::munmap(data, bytes); });
}

}  // namespace

Result<std::shared_ptr<std::byte>> AnonymousMemory(std::size_t bytes) {
  return Map(MAP_PRIVATE | MAP_ANONYMOUS, -1, bytes);
}

Result<std::shared_ptr<std::byte>> MapDescriptor(int fd, std::size_t bytes) {
  return Map(MAP_SHARED, fd, bytes);
}

}  // namespace muster
