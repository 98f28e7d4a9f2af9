// ExpertAdapters: low-rank adapters on a matrix of all experts of a layer, forward and backward by
// hand.
//
// As PEFT lays them out on a parameter that is a matrix for each of E experts (ParamWrapper of its
// lora/layer.py): A is [E * r, in], expert e's in rows e * r .. e * r + r - 1; B is [out, r * E],
// expert e's in the columns e, E + e, 2 E + e, and so on; seen as [out * r, E] it may be a part of
// the experts'. To the output of expert e goes
// scale * x A_e^T B_e^T, where x are its rows (router.h). Hidden values are made again in backward.
// On a CPU one call goes over all experts (trainer/ops/cpu/grouped_factors.h), since products with
// so few columns are over before a library has found its kernel.
//
// A form without segments adds nothing. The trainer's thread. Shape errors are Torch exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/linear.h"
#include "trainer/model/lora_form.h"
#include "trainer/model/router.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// Where they compute; one for both matrices of a layer, in turn. S rows of tokens.
struct ExpertAdapterScratch {
  at::Tensor hidden;           // [S, r]
  at::Tensor hidden_gradient;  // [S, r]
  at::Tensor b;                // [E * out * r] of the wider matrix: B, expert by expert
  at::Tensor b_gradient;       // likewise, W
};

ExpertAdapterScratch CutExpertAdapterScratch(const ModelConfig& config, const BlockLora& lora,
                                             BumpAllocator& allocator, std::int64_t rows,
                                             at::ScalarType type);

class ExpertAdapters {
 public:
  // `ops` outlives the object.
  explicit ExpertAdapters(DeviceOps& ops) : weight_gradient_(ops) {}

  // y [S, out] += the adapters of x [S, in].
  void Forward(const Routing& routing, const LoraForm& form, const at::Tensor& x,
               const LinearWeights& weights, ExpertAdapterScratch& scratch, const at::Tensor& y);
  // First this; the next two, of the same matrix, read what it leaves in the scratch.
  void HiddenGradient(const Routing& routing, const LoraForm& form, const at::Tensor& y_gradient,
                      const LinearWeights& weights, ExpertAdapterScratch& scratch);
  // x_gradient [S, in] += what comes through the adapters.
  void AddInputGradient(const Routing& routing, const LoraForm& form, const LinearWeights& weights,
                        const ExpertAdapterScratch& scratch, const at::Tensor& x_gradient);
  void ParameterGradients(const Routing& routing, const LoraForm& form,
                          const at::Tensor& y_gradient, const at::Tensor& x,
                          const LinearWeights& weights, ExpertAdapterScratch& scratch,
                          const LinearGradients& gradients);

 private:
  // target [E, r, width] (+)= scale * hidden^T x of each expert's rows
  void FactorGradients(const Routing& routing, const at::Tensor& hidden, const at::Tensor& x,
                       double scale, const GradientTarget& target);

  LinearWeightGradient weight_gradient_;
};

}  // namespace muster
