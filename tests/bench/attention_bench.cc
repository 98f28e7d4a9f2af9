// Attention forward and backward on one thread, ours in every form that this processor has beside
// LibTorch's scaled_dot_product_attention, as JSON.
//
//   attention_bench [REPETITIONS]      default 15
//
// Times are the best in milliseconds of runs that take turns; ratio is ours over LibTorch's for
// forward and backward together; difference is the largest between the two outputs, which also
// shows that both can use AMX in one thread. ONEDNN_MAX_CPU_ISA limits LibTorch's products.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "trainer/ops/cpu/attention_paths.h"

namespace muster {
namespace {

using nlohmann::json;

struct Times {
  std::vector<double> forward, backward;
};

double Best(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end()) * 1e3;
}

template <typename Body>
double Seconds(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tensors are [batch, length, heads, head_dim] on our side, transposed for LibTorch.
struct Problem {
  AttentionShape shape;
  at::Tensor query, key, value, out_gradient;

  Problem(const AttentionShape& s, at::ScalarType type) : shape(s) {
    at::manual_seed(1);
    const auto make = [&](std::int64_t heads) {
      return at::randn({shape.batch, shape.length, heads, shape.head_dim}).to(type);
    };
    query = make(shape.heads);
    key = make(shape.kv_heads);
    value = make(shape.kv_heads);
    out_gradient = make(shape.heads);
  }
};

// What LibTorch takes for a window; nothing where there is none, since causality is a flag.
std::optional<at::Tensor> MaskOf(const AttentionShape& shape) {
  if (shape.window == 0) return std::nullopt;
  const at::Tensor places = at::arange(shape.length);
  const at::Tensor distance = places.unsqueeze(1) - places;
  return distance.ge(0).logical_and_(distance.lt(shape.window));
}

at::Tensor RunLibTorch(const Problem& p, Times& times) {
  const std::optional<at::Tensor> mask = MaskOf(p.shape);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor* t : {&p.query, &p.key, &p.value}) {
    inputs.push_back(t->transpose(1, 2).detach().requires_grad_());
  }
  at::Tensor out;
  times.forward.push_back(Seconds([&] {
    out = at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], mask, 0.0,
                                           !mask.has_value(), p.shape.scale,
                                           p.shape.heads != p.shape.kv_heads);
  }));
  times.backward.push_back(Seconds([&] { out.backward(p.out_gradient.transpose(1, 2)); }));
  return out.detach().transpose(1, 2);
}

template <typename Element>
at::Tensor RunOurs(const Problem& p, const AttentionKernels<Element>& kernels, Times& times) {
  const AttentionShape& s = p.shape;
  at::Tensor out = at::empty_like(p.query), dq = at::empty_like(p.query);
  at::Tensor dk = at::empty_like(p.key), dv = at::empty_like(p.key);
  std::vector<float> lse(static_cast<std::size_t>(s.batch * s.heads * s.length));
  const auto rows = [](const at::Tensor& t) {
    return HeadArray<Element>{static_cast<Element*>(t.data_ptr()), t.stride(1)};
  };
  const auto read = [&](const at::Tensor& t) {
    return HeadArray<const Element>{rows(t).data, rows(t).stride};
  };
  times.forward.push_back(Seconds([&] {
    AttentionForward<Element>(kernels, s,
                              {read(p.query), read(p.key), read(p.value), rows(out), lse.data()}, 0,
                              AttentionTasks(s));
  }));
  times.backward.push_back(Seconds([&] {
    AttentionBackward<Element>(kernels, s,
                               {read(p.query), read(p.key), read(p.value), read(out),
                                read(p.out_gradient), lse.data(), rows(dq), rows(dk), rows(dv)},
                               0, AttentionTasks(s));
  }));
  return out;
}

template <typename Element>
json Measure(const char* name, const AttentionShape& shape, at::ScalarType type, int repetitions) {
  const Problem problem(shape, type);
  Times torch, warm_up;
  const at::Tensor expected = RunLibTorch(problem, warm_up);
  std::vector<AttentionPath> paths;
  for (const AttentionPath path : kAttentionPaths) {
    if (FindAttention<Element>(path) != nullptr) paths.push_back(path);
  }
  std::vector<Times> ours(paths.size());
  std::vector<double> difference(paths.size());
  for (int i = 0; i < repetitions; ++i) {
    RunLibTorch(problem, torch);
    for (std::size_t p = 0; p < paths.size(); ++p) {
      const at::Tensor out = RunOurs(problem, *FindAttention<Element>(paths[p]), ours[p]);
      difference[p] = (out.to(at::kFloat) - expected.to(at::kFloat)).abs().max().item<double>();
    }
  }
  const double torch_ms = Best(torch.forward) + Best(torch.backward);
  json result = {{"type", name},
                 {"length", shape.length},
                 {"head_dim", shape.head_dim},
                 {"window", shape.window},
                 {"libtorch",
                  {{"forward_ms", Best(torch.forward)},
                   {"backward_ms", Best(torch.backward)},
                   {"both_ms", torch_ms}}}};
  for (std::size_t p = 0; p < paths.size(); ++p) {
    const double forward = Best(ours[p].forward), backward = Best(ours[p].backward);
    result[ToString(paths[p])] = {{"forward_ms", forward},
                                  {"backward_ms", backward},
                                  {"both_ms", forward + backward},
                                  {"ratio", (forward + backward) / torch_ms},
                                  {"difference", difference[p]}};
  }
  return result;
}

int Run(int repetitions) {
  at::set_num_threads(1);
  const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA");
  json report = {{"benchmark", "attention"},
                 {"heads", 8},
                 {"kv_heads", 4},
                 {"onednn_max_cpu_isa", isa == nullptr ? "" : isa},
                 {"results", json::array()}};
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t length : {256, 512, 1000, 1024}) {
      const AttentionShape shape = {1, length,   8,
                                    4, head_dim, 1 / std::sqrt(static_cast<double>(head_dim))};
      report["results"].push_back(Measure<BFloat16>("bf16", shape, at::kBFloat16, repetitions));
      report["results"].push_back(Measure<float>("fp32", shape, at::kFloat, repetitions));
    }
  }
  // Time grows with the window: these three differ in length, and the first by its lack.
  for (const auto& [length, window] : {std::pair{2048, 0}, {2048, 512}, {4096, 512}}) {
    const AttentionShape shape = {1, length, 8, 4, 64, 0.125, /*cap=*/0, window};
    report["results"].push_back(Measure<BFloat16>("bf16", shape, at::kBFloat16, repetitions));
  }
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 15;
  if (repetitions < 1) {
    std::fprintf(stderr, "usage: attention_bench [REPETITIONS], at least 1\n");
    return 2;
  }
  return muster::Run(repetitions);
}
