#include "trainer/verbs/plan_inputs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/base/files.h"
#include "common/job_spec/foreign_config.h"
#include "common/job_spec/parse.h"
#include "trainer/fsdp/precision.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/families/read_config.h"
#include "trainer/model/products.h"
#include "trainer/ops/scalar_type.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxConfigBytes = 16 << 20;

// Operations per second of this machine's products, in units of 10^12, for one rank.
double MeasurePeak(MixedPrecision precision, int threads) {
  at::set_num_threads(threads);
  const at::ScalarType type =
      ScalarTypeOf(ResolvePrecision({.mixed_precision = precision}, {}).compute);
  constexpr std::int64_t kSize = 1024;
  const at::Tensor a = at::ones({kSize, kSize}, type), b = at::ones({kSize, kSize}, type);
  at::Tensor product = at::empty_like(a);
  MultiplyInto(product, a, b);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MultiplyInto(product, a, b);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds.count());
  }
  return best / 1e12;
}

// MemTotal of /proc/meminfo; 0 where there is none.
double MemoryOfThisHost() {
  const auto text = ReadFile("/proc/meminfo", 1 << 16);
  if (!text.ok()) return 0;
  const std::size_t at = text->find("MemTotal:");
  return at == std::string::npos ? 0 : std::strtod(text->c_str() + at + 9, nullptr) * 1024;
}

}  // namespace

Result<JobSpec> ReadTrainJob(const TrainOptions& options) {
  const std::string& file = options.file;
  MUSTER_ASSIGN_OR_RETURN(std::string text, ReadFile(file));
  if (!options.overrides.empty()) {
    MUSTER_ASSIGN_OR_RETURN(text, ApplyOverrides(text, options.overrides));
  }
  if (!options.accelerate_config.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const ForeignConfig config,
                            ReadForeignConfig(options.accelerate_config));
    MUSTER_ASSIGN_OR_RETURN(MergedJob merged, MergeForeignConfig(text, file, config));
    const char* rank = std::getenv("RANK");
    const bool is_first = rank == nullptr || std::string_view(rank) == "0";
    for (const std::string& line : merged.report)
      if (is_first) std::fprintf(stderr, "%s\n", line.c_str());
    text = std::move(merged.yaml);
  }
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, ParseJobSpec(text, file));
  if (!spec.train) {
    return InvalidArgument(file + ": has no train block; a command job is not run by the trainer");
  }
  return spec;
}

fs::path Below(const JobSpec& spec, const std::string& job_file, const std::string& path) {
  return fs::absolute(job_file).parent_path() / spec.workdir / path;
}

Result<ModelConfig> ReadShape(const fs::path& model, const std::string& named) {
  if (!fs::exists(model) && ParseHubId(named)) {
    MUSTER_ASSIGN_OR_RETURN(const std::string cached, ResolveModel(named));
    return ReadModelConfig(cached);
  }
  if (!fs::is_regular_file(model)) return ReadModelConfig(model.string());
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(model.string(), kMaxConfigBytes));
  return ParseModelConfig(text, model.string());
}

Hardware ThisHost(const JobSpec& spec) {
  const int threads = std::max(1, spec.resources.cpus_per_rank);
  return {.name = "CPU",
          .source = "measured here, a product of 1024 x 1024 matrices",
          .is_host = true,
          .peak_tflops = MeasurePeak(spec.train->fsdp.mixed_precision, threads),
          .achievable = 0.7,
          .network_rate = 1e9,
          .host_memory_bytes = MemoryOfThisHost()};
}

}  // namespace muster
