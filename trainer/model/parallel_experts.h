// ParallelExperts: the experts of sparse layers where each rank of a group has a part of them
// (expert parallelism).
//
// Rank r of n has E / n of the E experts, from r * E / n on. The rows of a rank's tokens go to the
// ranks of their experts by an all-to-all, and what these make of them comes back by another;
// backward does the same with gradients. To the rank that computes them the R rows that came are
// tokens with one expert each (experts.h): sorted by expert, those of one expert by the rank they
// came from, and those in its order. So bits depend on the routing on all ranks and the number of
// threads alone, and computing a layer again repeats the exchange.
//
// R is as the routers of all ranks decide: on average that of the rank's own rows, S, and at most n
// times that. Memory grows to the largest R and stays.
//
// Adapters come for all experts, whose they are together, and a rank reads and writes its own
// experts' part of them: of the others' its gradients are zero.
//
// Letters as in experts.h; S rows lie in the order of the routing. The trainer's thread, on all
// ranks of the group alike. Errors are the communicator's, and the first one stays: from then on
// nothing travels, and results mean nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/core/model_config.h"
#include "trainer/model/arena.h"
#include "trainer/model/block_tensors.h"
#include "trainer/model/experts.h"
#include "trainer/model/lora_form.h"
#include "trainer/model/router.h"
#include "trainer/ops/device_ops.h"

namespace muster {

class ParallelExperts {
 public:
  // `group` and `ops` outlive the object. `places`: blocks whose rows are kept at once; block b's
  // are at b % places.
  ParallelExperts(const ModelConfig& config, const BlockLora& lora, Communicator& group,
                  DeviceOps& ops, at::ScalarType type, int places);

  // What of the caller's scratch memory is used: `rows` and `row_gradients`.
  static ExpertScratch CutScratch(const ModelConfig& config, BumpAllocator& allocator,
                                  std::int64_t tokens, at::ScalarType type);
  // What the object takes where R is S, with a group of so many ranks.
  static std::int64_t BytesFor(const ModelConfig& config, const BlockLora& lora, int ranks,
                               std::int64_t tokens, at::ScalarType type, int places);

  // Brings the rows of x [N, H] to their experts, up to gate and up, which are kept for Output and
  // Backward.
  void Gather(int block, const at::Tensor& x, const BlockWeights& weights, const Routing& routing,
              ExpertScratch& scratch);
  // y [N, H].
  void Output(int block, const BlockWeights& weights, const Routing& routing,
              ExpertScratch& scratch, at::Tensor& y);
  // x_gradient [N, H] and scratch.row_gradients [S] are written.
  void Backward(int block, const at::Tensor& y_gradient, const BlockWeights& weights,
                const BlockGradients& gradients, const Routing& routing, ExpertScratch& scratch,
                at::Tensor& x_gradient);

  const Status& status() const { return status_; }
  std::int64_t bytes() const;

 private:
  // What is kept of a block: the rows that came for this rank's experts.
  struct Arrived {
    std::vector<std::int64_t> sent;      // rows, by the rank they went to
    std::vector<std::int64_t> received;  // by the rank they came from
    // As tokens with one expert each. Without probabilities, weights and experts.
    Routing routing;
    at::Tensor rows;     // [R, H], in the order in which they came
    at::Tensor gate_up;  // [R, 2 * I]
    std::int64_t count() const { return routing.begins.back(); }
  };
  // Blocks use it in turn.
  struct Scratch {
    ExpertScratch experts;
    at::Tensor rows;     // [R, H], in the order in which they came
    at::Tensor weights;  // [R] W, likewise
  };
  static Arrived CutArrived(const ModelConfig& config, BumpAllocator& allocator, std::int64_t rows,
                            at::ScalarType type);
  static Scratch CutOwnScratch(const ModelConfig& config, const BlockLora& lora,
                               BumpAllocator& allocator, std::int64_t rows, at::ScalarType type);

  std::size_t PlaceOf(int block) const { return static_cast<std::size_t>(block) % arrived_.size(); }
  // The tensors of this rank's experts, weights or gradients.
  template <typename Block>
  Block OwnOf(const Block& block) const;
  // What comes from where, and room for it.
  void Meet(int block, const Routing& routing);
  void FitScratch(std::int64_t rows);
  // The order of the rows that come, of the counts of all ranks: [n, E], row by row.
  void SortRows(const std::vector<std::int64_t>& counts, Arrived* arrived) const;
  // From [S, ...] to [R, ...], and back.
  void Send(const Arrived& arrived, const at::Tensor& from, at::Tensor& to);
  void Return(const Arrived& arrived, const at::Tensor& from, at::Tensor& to);
  void Move(const at::Tensor& from, const std::vector<std::int64_t>& sent, at::Tensor& to,
            const std::vector<std::int64_t>& received);

  const ModelConfig config_;  // with this rank's experts alone
  const BlockLora lora_;
  Communicator& group_;
  DeviceOps& ops_;
  const at::ScalarType type_;
  Experts experts_;
  std::vector<Arena> arenas_;  // by place
  std::vector<Arrived> arrived_;
  Arena scratch_arena_;
  Scratch scratch_;
  Status status_;
};

}  // namespace muster
