// Throughput: what share of the devices' peak a training puts to use (MFU, trainer/plan/flops.h),
// of a step and of all steps of this process.
//
// Tokens are those of the rows, with a label or not; a step's are taken from its labels and the
// data's mean. The peak is resources.peak_tflops, or that of a GPU that is known by its name; on
// others, and on CPUs, whose peak is not published, there is no MFU, only tokens per second.
//
// Rank 0's trainer thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/data/dataset.h"

namespace muster {

struct DevicePeak {
  double tflops = 0;   // dense, in the compute type; 0: not known
  std::string source;  // for people
};
// `described` is DeviceOps::Describe. The peak of a known GPU is for 16-bit types alone, as its
// table is.
DevicePeak FindPeak(const JobSpec& spec, const std::string& described);

class Throughput {
 public:
  // `trained`: parameters; fewer than the model's where adapters are trained.
  Throughput(const ModelConfig& config, std::int64_t trained, const DatasetStats& stats,
             int devices, DevicePeak peak);

  // The model's operations for so many labels.
  double Flops(std::int64_t labels) const;
  // The utilization in a step with so many labels over all ranks; 0: not known.
  double Utilization(std::int64_t labels, double seconds) const;
  // The step counts for Summary.
  void Add(std::int64_t labels, double seconds);
  // "1234 tokens/s, 617 per device, MFU 41.2 % of 989 TFLOP/s (NVIDIA H100 data sheet, ...)";
  // empty before the second step, because the first one is slower.
  std::string Summary() const;

 private:
  const double flops_per_token_;
  const double tokens_per_label_;
  const int devices_;
  const DevicePeak peak_;
  std::int64_t steps_ = 0;
  std::int64_t labels_ = 0;
  double seconds_ = 0;
};

}  // namespace muster
