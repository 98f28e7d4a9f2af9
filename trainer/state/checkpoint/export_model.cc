#include "trainer/state/checkpoint/export_model.h"

#include <algorithm>
#include <utility>

#include "trainer/core/flat_layout.h"
#include "trainer/state/checkpoint/element_convert.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceElements = 1 << 18;

Status CheckTensor(const StateReader& state, const TensorSpec& tensor) {
  const StateTensor* found = state.Find(kWeightKind, tensor.name);
  if (found == nullptr) {
    return FailedPrecondition(state.path() + " holds no tensor " + tensor.name +
                              ": it is not of the model that config.json describes");
  }
  if (found->shape == tensor.shape) return OkStatus();
  return FailedPrecondition(found->file + ": tensor " + tensor.name + " is " +
                            ShapeText(found->shape) + " there, config.json makes it " +
                            ShapeText(tensor.shape));
}

Status AppendTensor(StateReader& state, const TensorSpec& tensor, ModelDirectory* directory) {
  const ElementType type = state.Find(kWeightKind, tensor.name)->type;
  std::vector<char> stored(kPieceElements * ElementSize(type));
  std::vector<float> values(kPieceElements);
  for (std::int64_t at = 0; at < tensor.count(); at += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, tensor.count() - at);
    MUSTER_RETURN_IF_ERROR(state.Read(kWeightKind, tensor.name, at, count, stored.data()));
    ConvertElements(stored.data(), type, values.data(), ElementType::kFloat32, count);
    MUSTER_RETURN_IF_ERROR(directory->Append(values.data(), count));
  }
  return OkStatus();
}

}  // namespace

Status WriteModelDirectory(StateReader& state, const ModelExport& model, Mxfp4Error* error) {
  std::vector<StoredTensor> stored = model.stored;
  if (stored.empty()) stored.assign(model.tensors.begin(), model.tensors.end());
  for (const TensorSpec& tensor : model.tensors) MUSTER_RETURN_IF_ERROR(CheckTensor(state, tensor));
  ModelDirectory directory(model.source_dir, model.target_dir);
  directory.Replace(model.replaced);
  MUSTER_RETURN_IF_ERROR(model.adapter ? directory.BeginAdapter(*model.adapter)
                                       : directory.Begin(std::move(stored), model.max_shard_bytes));
  for (const TensorSpec& tensor : model.tensors) {
    MUSTER_RETURN_IF_ERROR(AppendTensor(state, tensor, &directory));
  }
  if (error != nullptr) *error = directory.mxfp4_error();
  return directory.Finish();
}

}  // namespace muster
