#include "trainer/model/llama_block.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "trainer/model/adapters.h"
#include "trainer/model/llama.h"
#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/model/testing/model_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace muster {
namespace {

constexpr ActivationCheckpointing kLevels[] = {
    ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
    ActivationCheckpointing::kFull, ActivationCheckpointing::kFullOffload};

// What a block may have beside its matrices.
enum class Kind {
  kLlama,
  kQwen2,
  kQwen3,
  kMistral,
  kSmolLm3,
  kOlmo2,
  kGemma2,  // with a cap, and a window in every second layer
  kGemma3,  // with norms of heads, and other angles in layers with a window
  kLora,
  kLoraOlmo2,
  kLoraGemma2,
  kMixture,      // 2 of 4 experts in all layers but one
  kAllExperts,   // all of 3 experts in every layer
  kShared,       // kMixture with an expert that every token has
  kLoraMixture,  // kMixture with adapters on experts
  kLoraAllExperts,
  kGptOss,  // all of 3 experts, with biases and bounds; sinks, a window in every second layer
};
constexpr Kind kKinds[] = {
    Kind::kLlama,      Kind::kQwen2,      Kind::kQwen3,   Kind::kMistral,     Kind::kSmolLm3,
    Kind::kOlmo2,      Kind::kGemma2,     Kind::kGemma3,  Kind::kLora,        Kind::kLoraOlmo2,
    Kind::kLoraGemma2, Kind::kAllExperts, Kind::kMixture, Kind::kLoraMixture, Kind::kLoraAllExperts,
    Kind::kGptOss,     Kind::kShared};

// Caps low enough that they are felt.
void SetGemma(bool third, ModelConfig* config) {
  config->norm_placement = NormPlacement::kBoth;
  config->zero_centered_norms = true;
  config->activation = Activation::kGeluTanh;
  config->sliding_window = third ? 1 : 4;
  for (std::int64_t b = 0; b < config->num_hidden_layers; ++b)
    config->attention.full_layers.push_back(b == 1);
  config->attention_multiplier = 0.4;
  if (!third) config->attention.cap = 1.5;
  if (!third) return;
  config->qk_norms = QkNorms::kPerHead;
  config->attention.window_rope_theta = 100;
  config->rope_scaling = {.kind = RopeKind::kLinear, .factor = 8};
}

// How much more than others a kind rounds: norms behind what they norm, and routers, magnify.
double Rounding(Kind kind) {
  switch (kind) {
    case Kind::kGemma2:
    case Kind::kGemma3:
    case Kind::kLoraGemma2: return 3;
    // Processors with products of bf16 round probabilities to it too.
    case Kind::kGptOss: return 5;
    case Kind::kAllExperts:
    case Kind::kLoraAllExperts: return 2;
    default: return 1;
  }
}

ModelConfig ConfigOf(Kind kind, int blocks) {
  ModelConfig config = OddConfig(blocks);
  config.qkv_bias = kind == Kind::kQwen2;
  if (kind == Kind::kQwen3) config.qk_norms = QkNorms::kPerHead;
  if (kind == Kind::kOlmo2 || kind == Kind::kLoraOlmo2) {
    config.qk_norms = QkNorms::kAllHeads;
    config.norm_placement = NormPlacement::kAfter;
  }
  if (kind == Kind::kSmolLm3) {
    for (int b = 0; b < blocks; ++b) config.rotating_layers.push_back(b != 1);
  }
  const bool gemma2 = kind == Kind::kGemma2 || kind == Kind::kLoraGemma2;
  if (gemma2 || kind == Kind::kGemma3) SetGemma(kind == Kind::kGemma3, &config);
  if (kind == Kind::kMistral) config.sliding_window = 4;
  if (kind == Kind::kAllExperts || kind == Kind::kLoraAllExperts) {
    config.experts = {.count = 3, .per_token = 3, .intermediate_size = 19};
  }
  if (kind == Kind::kGptOss) {
    config.qkv_bias = config.output_bias = config.attention.sinks = true;
    config.sliding_window = 4;
    for (int b = 0; b < blocks; ++b) config.attention.full_layers.push_back(b == 1);
    config.experts = {.count = 3,
                      .per_token = 3,
                      .intermediate_size = 19,
                      .normalizes_weights = true,
                      .biases = true,
                      .picks_by_logit = true,
                      .clamped = ClampedSwiGluForm{.limit = 0.8, .alpha = 1.5}};
  }
  if (kind == Kind::kMixture || kind == Kind::kShared || kind == Kind::kLoraMixture) {
    config.experts = {
        .count = 4, .per_token = 2, .intermediate_size = 19, .normalizes_weights = true};
    for (int b = 0; b < blocks; ++b) config.experts->sparse_layers.push_back(b != 1);
  }
  if (kind == Kind::kShared) config.experts->shared_intermediate_size = 27;
  return config;
}

// On some of the modules, so that the parts of joined matrices differ.
LoraSpec SomeAdapters(Kind kind) {
  LoraSpec lora;
  lora.r = 3;
  lora.alpha = 5;
  lora.target_modules = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  if (kind == Kind::kLoraMixture)
    lora.target_modules = {"o_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  if (kind == Kind::kLoraAllExperts) lora.target_modules = {"mlp.experts.down_proj"};
  return lora;
}

// Some blocks, what enters them, and the gradient of what leaves them.
struct Problem {
  ModelConfig config;
  at::ScalarType type;
  BatchShape shape;
  BlockLora lora;
  std::vector<BlockWeights> weights;
  at::Tensor input;     // [N, H]
  at::Tensor gradient;  // [N, H]

  Problem(const ModelConfig& model, at::ScalarType element, const BatchShape& batch,
          const BlockLora& adapters = {})
      : config(model), type(element), shape(batch), lora(adapters) {
    at::manual_seed(13);
    for (int b = 0; b < config.num_hidden_layers; ++b) {
      weights.push_back(RandomBlock(config, type, b));
      AddRandomLora(lora, &weights.back());
    }
    const auto random = [&] {
      return at::randn({shape.tokens(), config.hidden_size}, at::kDouble).to(type);
    };
    input = random();
    gradient = random();
  }
};

struct Outcome {
  at::Tensor output;
  at::Tensor input_gradient;
  std::vector<at::Tensor> weight_gradients;  // of every tensor that the blocks have

  std::vector<at::Tensor> List() const {
    std::vector<at::Tensor> all = {output, input_gradient};
    all.insert(all.end(), weight_gradients.begin(), weight_gradients.end());
    return all;
  }
};

void MergeAll(const BlockLora& lora, BlockWeights* block) {
  const auto merge = [](const LoraForm& form, LinearWeights* linear) {
    if (!form.segments.empty()) linear->weight = Merged(*linear, form);
  };
  merge(lora.qkv, &block->qkv);
  merge(lora.output, &block->output);
  merge(lora.gate_up, &block->gate_up);
  merge(lora.down, &block->down);
  if (!block->router.defined()) return;
  const auto merge_experts = [block](const LoraForm& form, LinearWeights* linear) {
    if (!form.segments.empty())
      linear->weight = MergedExperts(*linear, form, block->router.size(0));
  };
  merge_experts(lora.expert_gate_up, &block->expert_gate_up);
  merge_experts(lora.expert_down, &block->expert_down);
}

// By autograd over BlockForward in fp64, from the same values.
Outcome Differentiated(const Problem& p) {
  RotaryTables rotary(p.config, {.stored = at::kDouble});
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(true); };
  std::vector<at::Tensor> leaves = {leaf(p.input)};
  at::Tensor hidden = leaves[0].view({p.shape.rows, p.shape.length, -1});
  for (std::size_t b = 0; b < p.weights.size(); ++b) {
    BlockWeights wide = p.weights[b];
    for (const TensorRole role : kBlockRoles) {
      if (!wide.Of(role).defined()) continue;
      wide.Of(role) = leaf(wide.Of(role));
      leaves.push_back(wide.Of(role));
    }
    MergeAll(p.lora, &wide);
    const auto layer = static_cast<std::int64_t>(b);
    hidden = BlockForward(p.config, layer, rotary.OfLayer(layer), hidden, wide);
  }
  const auto gradients =
      torch::autograd::grad({hidden.view(p.input.sizes())}, leaves, {p.gradient.to(at::kDouble)});
  return {hidden.detach().view(p.input.sizes()),
          gradients[0],
          {gradients.begin() + 1, gradients.end()}};
}

struct Targets {
  at::ScalarType type;
  bool add = false;
  double before = std::numeric_limits<double>::quiet_NaN();  // what the targets hold
  bool adapters_alone = false;                               // everything else is frozen
};

// One micro-batch through `blocks`, forward and backward.
Outcome TrainWith(const Problem& p, LlamaBlocks& blocks, const Targets& targets) {
  RotaryTables rotary(p.config, {.stored = WideType(p.type)});
  blocks.Begin(p.shape, rotary.OfBatch(p.shape, {}));
  ResidualStream stream{.sum = p.input.clone()};
  const int count = static_cast<int>(p.weights.size());
  for (int b = 0; b < count; ++b) stream = blocks.Forward(b, stream, p.weights[b]);
  Outcome outcome{.output = stream.sum + stream.delta, .input_gradient = p.gradient.clone()};
  std::vector<BlockGradients> gradients(p.weights.size());
  for (std::size_t b = 0; b < p.weights.size(); ++b) {
    BlockWeights weights = p.weights[b];
    for (const TensorRole role : kBlockRoles) {
      if (!weights.Of(role).defined()) continue;
      if (targets.adapters_alone && role < TensorRole::kQkvLoraA) {
        outcome.weight_gradients.emplace_back();
        continue;
      }
      outcome.weight_gradients.push_back(
          at::full(weights.Of(role).sizes(), targets.before, targets.type));
      gradients[b].Of(role) = {outcome.weight_gradients.back(), targets.add};
    }
  }
  for (int b = count - 1; b >= 0; --b) {
    blocks.Backward(b, p.weights[b], gradients[b], outcome.input_gradient);
  }
  return outcome;
}

void ExpectClose(const Outcome& got, const Outcome& want, double tolerance) {
  const std::vector<at::Tensor> a = got.List(), b = want.List();
  for (std::size_t i = 0; i < a.size(); ++i) {
    // A row of one token asks nothing of query and key: their gradients are nothing but rounding.
    if (b[i].norm().item<double>() < 1e-10) {
      EXPECT_LE(a[i].norm().item<double>(), tolerance) << "tensor " << i;
    } else {
      EXPECT_LE(RelativeDifference(a[i], b[i]), tolerance)
          << "tensor " << i << ", norm " << b[i].norm();
    }
  }
}

void ExpectSameBits(const Outcome& got, const Outcome& want) {
  const std::vector<at::Tensor> a = got.List(), b = want.List();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

class LlamaBlocksOf : public testing::TestWithParam<at::ScalarType> {
 protected:
  Outcome Train(const Problem& p, ActivationCheckpointing level, const Targets& targets) const {
    LlamaBlocks blocks(p.config, *ops_, p.type, level, p.lora);
    return TrainWith(p, blocks, targets);
  }
  Problem Odd(const BatchShape& shape) const { return {OddConfig(3), GetParam(), shape}; }
  Problem Of(Kind kind, const BatchShape& shape) const {
    const ModelConfig config = ConfigOf(kind, 3);
    const bool adapters = kind == Kind::kLora || kind == Kind::kLoraOlmo2 ||
                          kind == Kind::kLoraGemma2 || kind == Kind::kLoraMixture ||
                          kind == Kind::kLoraAllExperts;
    return {config, GetParam(), shape, adapters ? LoraOf(config, SomeAdapters(kind)) : BlockLora()};
  }

  // `adapters`: their tensors.
  void ExpectFrozenTensorsMatterToNoOther(const Problem& p, std::size_t adapters) const {
    const Outcome all = Train(p, ActivationCheckpointing::kSelective, {.type = GetParam()});
    LlamaBlocks blocks(p.config, *ops_, p.type, ActivationCheckpointing::kSelective, p.lora);
    const Outcome some = TrainWith(p, blocks, {.type = GetParam(), .adapters_alone = true});
    EXPECT_TRUE(at::equal(some.input_gradient, all.input_gradient));
    std::size_t compared = 0;
    for (std::size_t i = 0; i < all.weight_gradients.size(); ++i) {
      if (!some.weight_gradients[i].defined()) continue;
      EXPECT_TRUE(at::equal(some.weight_gradients[i], all.weight_gradients[i])) << "tensor " << i;
      ++compared;
    }
    EXPECT_EQ(compared, adapters);
  }

  const std::unique_ptr<DeviceOps> ops_ = MakeCpuOps();
};

TEST_P(LlamaBlocksOf, GradientsMatchAutograd) {
  for (const Kind kind : kKinds) {
    // 16 bits choose other experts than 64 where two are about as likely.
    const bool chooses =
        kind == Kind::kMixture || kind == Kind::kShared || kind == Kind::kLoraMixture;
    if (chooses && at::elementSize(GetParam()) == 2) continue;
    for (const BatchShape& shape : {BatchShape{1, 1}, BatchShape{3, 7}, BatchShape{2, 33}}) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << shape.rows
                                      << " rows of " << shape.length);
      const Problem p = Of(kind, shape);
      // The gradient of a router is a difference of probabilities' gradients; of one token alone so
      // little can be left of it that all but fp64 is rounding.
      const bool all =
          kind == Kind::kAllExperts || kind == Kind::kLoraAllExperts || kind == Kind::kGptOss;
      if (all && shape.tokens() == 1 && GetParam() != at::kDouble) continue;
      ExpectClose(Train(p, ActivationCheckpointing::kNone, {.type = GetParam()}), Differentiated(p),
                  Rounding(kind) * Tolerance(GetParam()));
    }
  }
}

TEST_P(LlamaBlocksOf, FrozenTensorsChangeNoOtherGradient) {
  for (const auto& [kind, adapters] :
       {std::pair(Kind::kLora, 3u * 8u), std::pair(Kind::kLoraMixture, 3u * 2u + 2u * 4u)}) {
    ExpectFrozenTensorsMatterToNoOther(Of(kind, {3, 7}), adapters);
  }
}

TEST_P(LlamaBlocksOf, GradientsOfExpertsAdaptersAreAdded) {
  const Problem p = Of(Kind::kLoraAllExperts, {2, 9});
  Outcome want = Train(p, ActivationCheckpointing::kNone, {.type = WideType(GetParam())});
  for (at::Tensor& gradient : want.weight_gradients) gradient += 0.5;
  ExpectClose(Train(p, ActivationCheckpointing::kFull,
                    {.type = WideType(GetParam()), .add = true, .before = 0.5}),
              want, Tolerance(GetParam()));
}

TEST_P(LlamaBlocksOf, LevelsGiveTheSameBits) {
  for (const Kind kind : kKinds) {
    const Problem p = Of(kind, {3, 7});
    const Outcome kept = Train(p, ActivationCheckpointing::kNone, {.type = GetParam()});
    for (const ActivationCheckpointing level : kLevels) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << static_cast<int>(level));
      ExpectSameBits(Train(p, level, {.type = GetParam()}), kept);
    }
  }
}

TEST_P(LlamaBlocksOf, InputsThatWaitInHostMemoryGiveTheSameBits) {
  const Problem p(OddConfig(5), GetParam(), {2, 7});
  LateCopies device(*ops_);
  LlamaBlocks offloaded(p.config, device, p.type, ActivationCheckpointing::kFullOffload);
  const Outcome kept = Train(p, ActivationCheckpointing::kNone, {.type = GetParam()});
  ExpectSameBits(TrainWith(p, offloaded, {.type = GetParam()}), kept);
  ExpectSameBits(TrainWith(p, offloaded, {.type = GetParam()}), kept);
  EXPECT_GT(offloaded.host_bytes(), 0);
}

TEST_P(LlamaBlocksOf, GradientsAreAddedToTargetsOfTheWideType) {
  const Problem p = Odd({2, 9});
  const at::ScalarType wide = WideType(GetParam());
  Outcome want = Differentiated(p);
  ExpectClose(Train(p, ActivationCheckpointing::kNone, {.type = wide}), want,
              Tolerance(GetParam()));
  for (at::Tensor& gradient : want.weight_gradients) gradient += 0.5;
  for (const at::ScalarType type : {wide, GetParam()}) {
    ExpectClose(
        Train(p, ActivationCheckpointing::kNone, {.type = type, .add = true, .before = 0.5}), want,
        Tolerance(GetParam()));
  }
}

TEST_P(LlamaBlocksOf, ABatchLeavesNothingToTheNext) {
  const Problem large = Odd({3, 17}), small = Odd({1, 5});
  for (const ActivationCheckpointing level : kLevels) {
    LlamaBlocks blocks(large.config, *ops_, GetParam(), level);
    const Outcome first = TrainWith(large, blocks, {.type = GetParam()});
    const std::int64_t bytes = blocks.bytes();
    ExpectSameBits(TrainWith(small, blocks, {.type = GetParam()}),
                   Train(small, level, {GetParam()}));
    ExpectSameBits(TrainWith(large, blocks, {.type = GetParam()}), first);
    EXPECT_EQ(blocks.bytes(), bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LlamaBlocksOf,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

TEST(LlamaBlocks, TakeTheInputOfTheFirstBlockWhereItLies) {
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const Problem p(OddConfig(1), at::kFloat, {2, 5});
  LlamaBlocks blocks(p.config, *ops, at::kFloat, ActivationCheckpointing::kNone);
  RotaryTable rotary(p.config);
  const auto forward = [&](const at::Tensor& input) {
    blocks.Begin(p.shape, {rotary.OfBatch(p.shape, {})});
    const ResidualStream out = blocks.Forward(0, {.sum = input}, p.weights[0]);
    return out.sum + out.delta;
  };
  const at::Tensor copied = forward(p.input);
  EXPECT_TRUE(at::equal(forward(blocks.FirstInput().copy_(p.input)), copied));
}

// Sizes without odd ends: bytes are those of the arrays.
class LlamaBlocksMemory : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 128, kHidden = 128, kInner = 256, kHeads = 4;

  static std::int64_t Bytes(ActivationCheckpointing level, int blocks) {
    ModelConfig config = OddConfig(blocks);
    config.hidden_size = kHidden;
    config.intermediate_size = kInner;
    config.head_dim = 32;
    const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
    LlamaBlocks all(config, *ops, at::kBFloat16, level);
    const at::Tensor angles = at::zeros({64, 16});
    all.Begin({2, 64}, {.all = {.cos = angles, .sin = angles}});
    EXPECT_EQ(all.host_bytes(), 0);
    return all.bytes();
  }
  static std::int64_t BytesOfOneBlock(ActivationCheckpointing level) {
    return Bytes(level, 5) - Bytes(level, 4);
  }
};

TEST_F(LlamaBlocksMemory, OfABlockIsWhatBackwardReads) {
  const std::int64_t residual = 2 * kTokens * kHidden;  // bf16
  const std::int64_t statistics = 4 * kTokens * (2 + kHeads);
  const std::int64_t qkv = 2 * residual, attended = residual, gate_up = 4 * kTokens * kInner;
  const std::int64_t selective = 2 * residual + statistics + qkv + attended + gate_up;
  EXPECT_EQ(BytesOfOneBlock(ActivationCheckpointing::kNone), selective + 2 * residual);
  EXPECT_EQ(BytesOfOneBlock(ActivationCheckpointing::kSelective), selective);
  EXPECT_EQ(BytesOfOneBlock(ActivationCheckpointing::kFull), residual);
  EXPECT_EQ(BytesOfOneBlock(ActivationCheckpointing::kFullOffload), residual);
}

TEST_F(LlamaBlocksMemory, OfScratchIsSharedByTheHalvesOfABlock) {
  const std::int64_t residual = 2 * kTokens * kHidden, inner = 2 * kTokens * kInner;
  EXPECT_EQ(
      Bytes(ActivationCheckpointing::kNone, 1) - BytesOfOneBlock(ActivationCheckpointing::kNone),
      residual + 2 * inner);
}

}  // namespace
}  // namespace muster
