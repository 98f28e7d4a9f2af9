#include "trainer/ops/testing/nf4_testing.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/nf4_tensor.h"
#include "trainer/ops/device_ops.h"

namespace muster {
namespace {

// Reads arrays one behind the other.
class ArrayFile {
 public:
  explicit ArrayFile(const std::string& path) : file_(path, std::ios::binary) {}

  at::Tensor Next(std::int64_t count, at::ScalarType type) {
    at::Tensor array = at::empty({count}, type);
    file_.read(static_cast<char*>(array.data_ptr()), static_cast<std::streamsize>(array.nbytes()));
    return array;
  }
  bool good() const { return file_.good(); }
  bool AtEnd() { return good() && file_.peek() == std::ifstream::traits_type::eof(); }

 private:
  std::ifstream file_;
};

std::int64_t Differences(const at::Tensor& ours, const at::Tensor& theirs) {
  TORCH_CHECK(ours.numel() == theirs.numel() && ours.scalar_type() == theirs.scalar_type());
  if (ours.scalar_type() == at::kByte) return at::ne(ours, theirs).sum().item<std::int64_t>();
  const at::Tensor bits = at::ne(ours.view(at::kInt), theirs.view(at::kInt));
  const at::Tensor both_nan = ours.isnan().logical_and_(theirs.isnan());
  return 4 * bits.logical_and(both_nan.logical_not()).sum().item<std::int64_t>();
}

}  // namespace

Result<Nf4Differences> CompareNf4(const std::string& path) {
  ArrayFile file(path);
  const std::int64_t count = file.Next(1, at::kLong).item<std::int64_t>();
  if (!file.good() || count < 1) return InvalidArgument(path + ": no count of values");
  const std::int64_t blocks = Nf4Blocks(count);
  const at::Tensor values = file.Next(count, at::kFloat);
  const Nf4Tensor plain = QuantizeNf4(values, /*double_quantized=*/false);
  const Nf4Tensor twice = QuantizeNf4(values, /*double_quantized=*/true);
  at::Tensor read = at::empty({count}, at::kFloat);
  MakeCpuOps()->Run(op::DequantizeNf4{twice.source(), read});
  Nf4Differences found{.values = count};
  const at::Tensor codes = file.Next(Nf4Bytes(count), at::kByte);
  found.codes = Differences(plain.codes, codes) + Differences(twice.codes, codes);
  found.absmax = Differences(plain.absmax, file.Next(blocks, at::kFloat));
  found.offset = Differences(at::full({1}, twice.offset), file.Next(1, at::kFloat));
  found.absmax_codes = Differences(twice.absmax_codes, file.Next(blocks, at::kByte));
  found.nested_absmax =
      Differences(twice.nested_absmax, file.Next(Nf4NestedBlocks(count), at::kFloat));
  found.nested_code = Differences(twice.nested_code, file.Next(256, at::kFloat));
  found.read_back = Differences(read, file.Next(count, at::kFloat));
  if (!file.AtEnd()) return InvalidArgument(path + ": not as long as its count says");
  return found;
}

}  // namespace muster
