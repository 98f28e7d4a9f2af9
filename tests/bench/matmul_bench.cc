// The rate at which one thread of this machine does a model's matrix products, as JSON: what a
// whole training step is held against.
//
//   matmul_bench bf16|fp32 TOKENS SECONDS OUTxIN...
//
// Each OUTxIN is a linear layer with a weight of its own. A pass does, through LibTorch and for all
// layers in turn, what training does with them: forward [TOKENS, IN] x [IN, OUT], the gradient of
// the input and the gradient of the weight. Passes repeat for SECONDS; rates are of the median
// pass. Several processes at once give the rate of several cores at once.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpPasses = 3;
constexpr std::array<const char*, 3> kProducts = {"forward", "input_gradient", "weight_gradient"};

struct Layer {
  at::Tensor weight;           // [out, in]
  at::Tensor input;            // [tokens, in]
  at::Tensor output;           // [tokens, out]
  at::Tensor output_gradient;  // [tokens, out]
  at::Tensor input_gradient;   // [tokens, in]
  at::Tensor weight_gradient;  // [out, in]
};

Layer MakeLayer(std::int64_t tokens, std::int64_t out, std::int64_t in, at::ScalarType type) {
  const auto random = [&](std::int64_t rows, std::int64_t columns) {
    return at::randn({rows, columns}).to(type);
  };
  return {.weight = random(out, in),
          .input = random(tokens, in),
          .output = at::empty({tokens, out}, type),
          .output_gradient = random(tokens, out),
          .input_gradient = at::empty({tokens, in}, type),
          .weight_gradient = at::empty({out, in}, type)};
}

void Multiply(Layer& layer, std::size_t product) {
  if (product == 0) {
    at::mm_out(layer.output, layer.input, layer.weight.t());
  } else if (product == 1) {
    at::mm_out(layer.input_gradient, layer.output_gradient, layer.weight);
  } else {
    at::mm_out(layer.weight_gradient, layer.output_gradient.t(), layer.input);
  }
}

// Seconds of each kind of product over all layers.
std::array<double, 3> Pass(std::vector<Layer>& layers) {
  std::array<double, 3> seconds{};
  for (std::size_t product = 0; product < kProducts.size(); ++product) {
    const auto begin = Clock::now();
    for (Layer& layer : layers) Multiply(layer, product);
    seconds[product] = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return seconds;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `flops` is of one kind of product over all layers.
nlohmann::json Measure(std::vector<Layer>& layers, double limit_seconds, double flops) {
  for (int i = 0; i < kWarmUpPasses; ++i) Pass(layers);
  std::array<std::vector<double>, 3> by_product;
  std::vector<double> whole;
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < limit_seconds) {
    const std::array<double, 3> seconds = Pass(layers);
    whole.push_back(seconds[0] + seconds[1] + seconds[2]);
    for (std::size_t p = 0; p < seconds.size(); ++p) by_product[p].push_back(seconds[p]);
  }
  nlohmann::json report = {{"passes", whole.size()}, {"gflops", 3 * flops / Median(whole) / 1e9}};
  for (std::size_t p = 0; p < by_product.size(); ++p) {
    report[std::string(kProducts[p]) + "_gflops"] = flops / Median(by_product[p]) / 1e9;
  }
  return report;
}

int Usage() {
  std::fprintf(stderr, "usage: matmul_bench bf16|fp32 TOKENS SECONDS OUTxIN...\n");
  return 2;
}

int Run(int argc, char** argv) {
  if (argc < 5) return Usage();
  const std::string type = argv[1];
  const std::int64_t tokens = std::atoll(argv[2]);
  const double seconds = std::atof(argv[3]);
  if ((type != "bf16" && type != "fp32") || tokens < 1 || seconds <= 0) return Usage();
  at::set_num_threads(1);
  std::vector<Layer> layers;
  double flops = 0;
  for (int i = 4; i < argc; ++i) {
    char* end = nullptr;
    const std::int64_t out = std::strtoll(argv[i], &end, 10);
    const std::int64_t in = *end == 'x' ? std::strtoll(end + 1, &end, 10) : 0;
    if (out < 1 || in < 1 || *end != '\0') return Usage();
    layers.push_back(MakeLayer(tokens, out, in, type == "bf16" ? at::kBFloat16 : at::kFloat));
    flops += 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in);
  }
  nlohmann::json report = {{"benchmark", "matmul"}, {"type", type}, {"tokens", tokens}};
  report.update(Measure(layers, seconds, flops));
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return Run(argc, argv); }
