#include "trainer/comm/transport/shared/shared_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

Result<UniqueFd> MakeMemoryFile(std::size_t bytes) {
  UniqueFd fd(::memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "sizing shared memory to " + std::to_string(bytes) + " bytes");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing shared memory");
  }
  return fd;
}

Result<UniqueFd> KeptMemoryFile(int kept, std::size_t bytes) {
  UniqueFd fd(::fcntl(kept, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "another descriptor of shared memory");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "fstat of shared memory");
  if (static_cast<std::size_t>(info.st_size) == bytes) return fd;
  return Internal("memory from before has " + std::to_string(info.st_size) + " bytes, not " +
                  std::to_string(bytes));
}

Result<std::shared_ptr<std::byte>> MapDescriptor(int fd, std::size_t bytes) {
  return Map(MAP_SHARED, fd, bytes);
}

}  // namespace muster
