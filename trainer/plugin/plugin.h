// The CUDA plug-in: what libmuster_cuda.so offers to the trainer.
//
// The trainer opens the library when a job asks for `device: cuda` (trainer/plugin/plugin_loader.h)
// and calls its one C function. Both sides are built from one tree: the table carries C++ objects,
// and `build` must equal the trainer's own, or the loader refuses the library.
//
// The table lives as long as the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "trainer/comm/transport.h"
#include "trainer/ops/device_ops.h"

namespace muster {

struct CudaVersions {
  std::string plugin;   // of Muster
  std::string runtime;  // of CUDA, "13.0"
  std::string driver;   // the newest CUDA that it supports; empty: no driver
  std::string nccl;     // "2.28.9"; empty: it cannot be loaded
};

struct CudaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::int64_t memory_bytes = 0;
};

inline constexpr bool SupportsBFloat16(int compute_major) { return compute_major >= 8; }

struct CudaPlugin {
  const char* build = nullptr;
  CudaVersions (*versions)() = nullptr;
  // kFailedPrecondition says why no GPU can be used: no driver, an old one, none visible.
  Result<int> (*device_count)() = nullptr;
  // `device` counts the visible ones from 0. The first call for a device makes its context.
  Result<CudaDevice> (*device)(int device) = nullptr;
  Result<std::unique_ptr<DeviceOps>> (*make_ops)(int device) = nullptr;
  // Where gangs meet whose ranks exchange data over NCCL.
  Result<std::shared_ptr<RendezvousStore>> (*make_rendezvous)(int device,
                                                              Duration operation_timeout) = nullptr;
};

inline constexpr char kCudaPluginLibrary[] = "libmuster_cuda.so";
inline constexpr char kCudaPluginEntry[] = "muster_cuda_plugin_v1";
using CudaPluginEntry = const CudaPlugin* (*)();

}  // namespace muster
