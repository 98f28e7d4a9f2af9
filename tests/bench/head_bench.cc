// The head in bf16 on one thread: how far its weight's gradient is off, and what rounding it once
// costs, as JSON.
//
//   head_bench [TOKENS VOCABULARY HIDDEN [REPETITIONS]]     default 4096 128256 512 5
//
// LlamaHead takes turns with the same operators and products in the same chunks, whose gradients
// add up in bf16. Errors are |got - want| / |want| in the Euclidean norm; `want` is the product in
// fp64 of the very factors, which takes TOKENS times VOCABULARY elements of memory. Labels are
// distributed as words of a text are, the k-th in proportion to 1 / k. Times are the thread's.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common/base/host_peak.h"
#include "common/base/json.h"
#include "trainer/model/linear.h"
#include "trainer/model/llama_head.h"
#include "trainer/model/testing/head_factors.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/norm.h"

namespace muster {
namespace {

constexpr double kEps = 1e-5;

at::Tensor Random(at::IntArrayRef shape, double size) {
  return (at::randn(shape) * size).to(at::kBFloat16);
}

struct Problem {
  at::Tensor hidden, norm, head, labels;

  Problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width)
      : hidden(Random({tokens, width}, 1)),
        norm(Random({width}, 1)),
        head(Random({vocabulary, width}, 0.02)),
        labels(at::pow(static_cast<double>(vocabulary), at::rand({tokens}, at::kDouble))
                   .to(at::kLong)
                   .clamp_max(vocabulary - 1)) {}
  double scale() const { return 1 / static_cast<double>(labels.numel()); }
};

HeadTask TaskOf(const Problem& p, const at::Tensor& gradient) {
  return {.hidden = {.sum = p.hidden},
          .norm = p.norm,
          .head = p.head,
          .positions = at::arange(p.labels.numel()),
          .labels = p.labels,
          .eps = kEps,
          .scale = p.scale(),
          .norm_gradient = {.tensor = at::empty_like(p.norm)},
          .head_gradient = {.tensor = gradient}};
}

// What LlamaHead would do if the chunks' products were added up in place.
class InPlace {
 public:
  InPlace(DeviceOps& ops, const Problem& p, std::int64_t chunk)
      : ops_(ops),
        p_(p),
        weight_gradient_(ops),
        sum_(at::empty_like(p.hidden)),
        normed_(at::empty_like(p.hidden)),
        normed_gradient_(at::empty_like(p.hidden)),
        gradient_(at::empty_like(p.hidden)),
        norm_gradient_(at::empty_like(p.norm)),
        scale_(at::empty({p.hidden.size(0)})),
        logits_(ops.Allocate(chunk * p.head.size(0) * 2)
                    .view(at::kBFloat16)
                    .view({chunk, p.head.size(0)})) {}

  void Run(const at::Tensor& head_gradient) {
    at::Tensor loss = at::zeros({1}, at::kDouble);
    ops_.Run(op::AddNorm{p_.hidden, {}, p_.norm, kEps, sum_, normed_, scale_});
    const std::int64_t tokens = p_.labels.numel(), chunk = logits_.size(0);
    for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
      const std::int64_t size = std::min(chunk, tokens - begin);
      const at::Tensor rows = normed_.narrow(0, begin, size);
      at::Tensor logits = logits_.narrow(0, 0, size);
      at::Tensor rows_gradient = normed_gradient_.narrow(0, begin, size);
      LinearForward(rows, p_.head, logits);
      ops_.Run(op::CrossEntropy{logits, p_.labels.narrow(0, begin, size), p_.scale(), loss});
      LinearInputGradient(logits, p_.head, rows_gradient);
      weight_gradient_.Write(logits, rows, {.tensor = head_gradient, .add = begin > 0});
    }
    gradient_.zero_();
    ops_.Run(op::NormBackward{
        normed_gradient_, sum_, p_.norm, scale_, gradient_, {norm_gradient_, false}});
  }

 private:
  DeviceOps& ops_;
  const Problem& p_;
  LinearWeightGradient weight_gradient_;
  at::Tensor sum_, normed_, normed_gradient_, gradient_, norm_gradient_, scale_, logits_;
};

double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Seconds(const std::function<void()>& work) {
  const double begin = ThreadSeconds();
  work();
  return ThreadSeconds() - begin;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Errors of gradients, slice by slice of the vocabulary.
std::vector<double> Errors(const HeadFactors& factors, const std::vector<at::Tensor>& gradients) {
  constexpr std::int64_t kSlice = 4096;
  const at::Tensor normed = factors.normed.to(at::kDouble);
  const std::int64_t vocabulary = gradients.front().size(0);
  std::vector<double> apart(gradients.size());
  double size = 0;
  for (std::int64_t begin = 0; begin < vocabulary; begin += kSlice) {
    const std::int64_t words = std::min(kSlice, vocabulary - begin);
    std::vector<at::Tensor> slices;
    for (const at::Tensor& chunk : factors.logits)
      slices.push_back(chunk.narrow(1, begin, words).to(at::kDouble));
    const at::Tensor want = at::matmul(at::cat(slices).t(), normed);
    size += want.square().sum().item<double>();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor got = gradients[i].narrow(0, begin, words).to(at::kDouble);
      apart[i] += (got - want).square().sum().item<double>();
    }
  }
  for (double& each : apart) each = std::sqrt(each / size);
  return apart;
}

int Run(std::int64_t tokens, std::int64_t vocabulary, std::int64_t width, int repetitions) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  at::manual_seed(1);
  const auto cpu = MakeCpuOps();
  const Problem p(tokens, vocabulary, width);
  const auto head_sized = [&] {
    return cpu->Allocate(vocabulary * width * 2).view(at::kBFloat16).view({vocabulary, width});
  };
  const at::Tensor once = head_sized(), in_place = head_sized();
  at::Tensor loss = at::zeros({1}, at::kDouble);

  HostPeak peak;
  const std::int64_t before = peak.begin_bytes();
  LlamaHead head(*cpu, at::kBFloat16);
  head.Run(TaskOf(p, once), loss);
  const std::int64_t held = peak.bytes() - before;

  HeadFactors factors(*cpu);
  LlamaHead(factors, at::kBFloat16).Run(TaskOf(p, once), loss);
  InPlace other(*cpu, p, factors.logits.front().size(0));
  std::vector<double> seconds, other_seconds, ratios;
  for (int i = 0; i <= repetitions; ++i) {
    const double mine = Seconds([&] { head.Run(TaskOf(p, once), loss); });
    const double theirs = Seconds([&] { other.Run(in_place); });
    if (i == 0) continue;  // warm
    seconds.push_back(mine);
    other_seconds.push_back(theirs);
    ratios.push_back(mine / theirs);
  }
  const std::vector<double> errors = Errors(factors, {once, in_place});
  const LlamaHead::Shape frozen{.tokens = tokens, .hidden = width, .vocabulary = vocabulary};
  const nlohmann::json report = {{"benchmark", "head"},
                                 {"instructions", cpu->Describe()},
                                 {"tokens", tokens},
                                 {"vocabulary", vocabulary},
                                 {"hidden", width},
                                 {"chunks", factors.logits.size()},
                                 {"repetitions", repetitions},
                                 {"rms_error", errors[0]},
                                 {"rms_error_in_bf16", errors[1]},
                                 {"seconds", Median(seconds)},
                                 {"seconds_in_bf16", Median(other_seconds)},
                                 {"ratio", Median(ratios)},
                                 {"ratios", ratios},
                                 {"head_bytes", head.bytes()},
                                 {"of_which_sums_bytes", head.bytes() - head.BytesFor(frozen)},
                                 {"peak_bytes", held}};
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const auto number = [&](int i, std::int64_t otherwise) {
    return argc > i ? std::int64_t{std::atoll(argv[i])} : otherwise;
  };
  const std::int64_t tokens = number(1, 4096), vocabulary = number(2, 128256);
  const std::int64_t width = number(3, 512), repetitions = number(4, 5);
  if (std::min({tokens, vocabulary, width, repetitions}) < 1) {
    std::fprintf(stderr, "usage: head_bench [TOKENS VOCABULARY HIDDEN [REPETITIONS]]\n");
    return 2;
  }
  return muster::Run(tokens, vocabulary, width, static_cast<int>(repetitions));
}
