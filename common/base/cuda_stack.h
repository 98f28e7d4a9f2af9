// CudaStack: the versions that a node computes on GPUs with.
//
// The trainer reports them (`muster-trainer version --json`), its worker passes them on, and the
// coordinator compares those of a gang before it launches. Plain value; any thread.
#pragma once

#include <string>

namespace muster {

struct CudaStack {
  std::string plugin;   // build of libmuster_cuda.so
  std::string runtime;  // CUDA that it was built with, "13.0"
  std::string driver;   // the newest CUDA that the driver supports; empty: no driver
  std::string nccl;     // "2.28.9"; empty: it cannot be loaded

  friend bool operator==(const CudaStack&, const CudaStack&) = default;
};

}  // namespace muster
