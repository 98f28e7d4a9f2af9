#include "trainer/formats/stored_tensor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;

// What files hold of one: itself, or blocks and scales.
std::vector<TensorSpec> FilesOf(const StoredTensor& tensor) {
  if (tensor.form != StoredForm::kMxfp4) return {tensor.spec};
  const std::string& name = tensor.spec.name;
  std::vector<std::int64_t> shape = tensor.spec.shape;
  MUSTER_CHECK(shape.size() == 3 && shape[2] % kMxfp4Block == 0, "rows of whole blocks");
  shape[2] /= kMxfp4Block;
  const TensorSpec scales = {name + "_scales", TensorType::kU8, shape};
  shape.push_back(kMxfp4Bytes);
  return {{name + "_blocks", TensorType::kU8, shape}, scales};
}

}  // namespace

std::vector<TensorSpec> FileTensors(const std::vector<StoredTensor>& tensors) {
  std::vector<TensorSpec> all;
  for (const StoredTensor& tensor : tensors) {
    for (TensorSpec& spec : FilesOf(tensor)) all.push_back(std::move(spec));
  }
  return all;
}

TensorStream::TensorStream(std::vector<StoredTensor> tensors, WeightFiles& files)
    : tensors_(std::move(tensors)), files_(files) {}

const StoredTensor& TensorStream::Next() {
  while (current_ < tensors_.size() && appended_ == tensors_[current_].spec.count()) {
    ++current_;
    appended_ = 0;
  }
  MUSTER_CHECK(current_ < tensors_.size(), "more elements than the tensors have");
  return tensors_[current_];
}

Status TensorStream::Append(const float* values, std::int64_t count) {
  while (count > 0) {
    const StoredTensor& tensor = Next();
    const std::int64_t now = std::min(count, tensor.spec.count() - appended_);
    appended_ += now;
    switch (tensor.form) {
      case StoredForm::kInOrder: MUSTER_RETURN_IF_ERROR(files_.Append(values, now)); break;
      case StoredForm::kTurned: MUSTER_RETURN_IF_ERROR(AppendTurned(tensor, values, now)); break;
      case StoredForm::kMxfp4: MUSTER_RETURN_IF_ERROR(AppendMxfp4(tensor, values, now)); break;
    }
    values += now;
    count -= now;
  }
  return OkStatus();
}

Status TensorStream::AppendTurned(const StoredTensor& tensor, const float* values,
                                  std::int64_t count) {
  const std::int64_t columns = tensor.spec.shape[1], rows = tensor.spec.shape[2];
  const auto size = static_cast<std::size_t>(rows * columns);
  std::vector<float> turned;
  while (count > 0) {
    const auto now = std::min(count, static_cast<std::int64_t>(size) - std::ssize(pending_));
    pending_.insert(pending_.end(), values, values + now);
    values += now;
    count -= now;
    if (pending_.size() < size) continue;
    turned.resize(size);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        turned[static_cast<std::size_t>(column * rows + row)] =
            pending_[static_cast<std::size_t>(row * columns + column)];
    }
    pending_.clear();
    MUSTER_RETURN_IF_ERROR(files_.Append(turned.data(), rows * columns));
  }
  return OkStatus();
}

Status TensorStream::AppendMxfp4(const StoredTensor& tensor, const float* values,
                                 std::int64_t count) {
  if (!std::all_of(values, values + count, [](float value) { return std::isfinite(value); }))
    return InvalidArgument("tensor " + tensor.spec.name +
                           " has a number that is not finite, which MXFP4 cannot hold; leave "
                           "--mxfp4 out");
  pending_.insert(pending_.end(), values, values + count);
  const std::int64_t blocks = std::ssize(pending_) / kMxfp4Block;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(blocks * kMxfp4Bytes));
  const std::size_t before = scales_.size();
  scales_.resize(before + static_cast<std::size_t>(blocks));
  QuantizeMxfp4(pending_.data(), blocks, codes.data(), scales_.data() + before, &error_);
  pending_.erase(pending_.begin(), pending_.begin() + blocks * kMxfp4Block);
  MUSTER_RETURN_IF_ERROR(files_.AppendStored(codes.data(), std::ssize(codes)));
  if (appended_ < tensor.spec.count()) return OkStatus();
  const std::vector<std::uint8_t> scales = std::exchange(scales_, {});
  return files_.AppendStored(scales.data(), std::ssize(scales));
}

Status TensorStream::Copy(const SafetensorsModel& model) {
  const StoredTensor& tensor = Next();
  MUSTER_CHECK(appended_ == 0, "a tensor is copied whole");
  std::vector<char> bytes;
  for (const TensorSpec& file : FilesOf(tensor)) {
    const std::int64_t size = TensorTypeSize(file.type);
    for (std::int64_t at = 0; at < file.count(); at += kPieceElements) {
      const std::int64_t count = std::min(kPieceElements, file.count() - at);
      bytes.resize(static_cast<std::size_t>(count * size));
      MUSTER_RETURN_IF_ERROR(model.ReadStored(file.name, at, count, bytes.data()));
      MUSTER_RETURN_IF_ERROR(files_.AppendStored(bytes.data(), count));
    }
  }
  appended_ = tensor.spec.count();
  return OkStatus();
}

}  // namespace muster
