#include "trainer/ops/cpu/cpu_memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace muster {
namespace {

// Arrays from here on get large pages: fewer address translations when they are streamed, and at
// most one large page more memory each.
constexpr std::size_t kLargeArray = std::size_t{8} << 20;

}  // namespace

at::Tensor MapZeroed(std::size_t bytes) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte);
  if (bytes == 0) return at::empty({0}, options);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "cannot allocate ", bytes, " bytes: ", std::strerror(errno));
  if (bytes >= kLargeArray) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      memory, {static_cast<std::int64_t>(bytes)}, [bytes](void* m) { ::munmap(m, bytes); },
      options);
}

}  // namespace muster
