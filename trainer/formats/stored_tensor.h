// StoredTensor: a tensor of a model as it is written into files, where that is not element by
// element in the model's order.
//
// Pure values; TensorStream belongs to one thread and blocks on the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/formats/mxfp4.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/weight_files.h"

namespace muster {

enum class StoredForm {
  kInOrder,
  kTurned,  // [experts, in, out]: to the model a matrix [out, in] for each expert
  kMxfp4,   // [experts, out, in] in NAME_blocks and NAME_scales (mxfp4.h); 32 divides in
};

struct StoredTensor {
  TensorSpec spec;
  StoredForm form = StoredForm::kInOrder;

  StoredTensor(TensorSpec of, StoredForm as = StoredForm::kInOrder)
      : spec(std::move(of)), form(as) {}
};

// The tensors that files hold of these.
std::vector<TensorSpec> FileTensors(const std::vector<StoredTensor>& tensors);

// Writes the elements of a model's tensors, which come in the model's order. Memory is one expert's
// matrix twice, or a tensor's scales.
class TensorStream {
 public:
  // `files` outlives the object, and has FileTensors(tensors).
  TensorStream(std::vector<StoredTensor> tensors, WeightFiles& files);

  // The next `count` elements, over the ends of tensors.
  Status Append(const float* values, std::int64_t count);
  // The whole of the tensor whose turn it is, as files have it: `model` holds it in this form.
  Status Copy(const SafetensorsModel& model);

  // What Append has lost by putting matrices into MXFP4.
  const Mxfp4Error& mxfp4_error() const { return error_; }

 private:
  const StoredTensor& Next();
  Status AppendTurned(const StoredTensor& tensor, const float* values, std::int64_t count);
  Status AppendMxfp4(const StoredTensor& tensor, const float* values, std::int64_t count);

  const std::vector<StoredTensor> tensors_;
  WeightFiles& files_;
  std::size_t current_ = 0;
  std::int64_t appended_ = 0;   // elements of the current tensor
  std::vector<float> pending_;  // of a matrix or a block that is not whole yet
  std::vector<std::uint8_t> scales_;
  Mxfp4Error error_;
};

}  // namespace muster
