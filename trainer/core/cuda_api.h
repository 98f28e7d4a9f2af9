// CudaApi: the functions of the CUDA runtime that collectives need, as a table.
//
// The plug-in fills it with the runtime's functions and with kernels of its own (MakeCudaApi in
// plugin.cc), a test with a substitute over host memory. Functions return the runtime's error codes
// and may be called from any thread; those that name no stream or event act on the device that
// SetDevice chose for the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trainer/core/element_type.h"

namespace muster {

struct CudaStreamObject;
struct CudaEventObject;
using CudaStream = CudaStreamObject*;  // cudaStream_t; null: the default stream
using CudaEvent = CudaEventObject*;    // cudaEvent_t

enum class CudaResult : int { kSuccess = 0, kNotReady = 600 };  // cudaError_t

// to[r][c] = from[r][c], or += with `add`, over rows whose beginnings lie `stride` elements apart;
// to nearest, ties to even.
struct ConvertRows {
  const void* from = nullptr;
  ElementType from_type = ElementType::kFloat32;
  std::int64_t from_stride = 0;
  void* to = nullptr;
  ElementType to_type = ElementType::kFloat32;
  std::int64_t to_stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool add = false;
};

struct CudaApi {
  std::function<CudaResult(int device)> SetDevice;
  // Not ordered with the default stream; served before streams of ordinary priority.
  std::function<CudaResult(CudaStream* stream)> StreamCreate;
  std::function<CudaResult(CudaStream stream)> StreamDestroy;
  std::function<CudaResult(CudaStream stream, CudaEvent event)> StreamWaitEvent;
  std::function<CudaResult(CudaEvent* event)> EventCreate;  // without timing
  std::function<CudaResult(CudaEvent event)> EventDestroy;
  std::function<CudaResult(CudaEvent event, CudaStream stream)> EventRecord;
  std::function<CudaResult(CudaEvent event)> EventQuery;
  std::function<CudaResult(void** memory, std::size_t bytes)> Malloc;
  std::function<CudaResult(void* memory)> Free;
  // Host memory that the device copies from and to while it computes.
  std::function<CudaResult(void** memory, std::size_t bytes)> HostMalloc;
  std::function<CudaResult(void* memory)> HostFree;
  // Whether this is ordinary memory of the host, which the device cannot read.
  std::function<bool(const void* memory)> IsHostMemory;
  std::function<CudaResult(void* to, const void* from, std::size_t bytes, CudaStream stream)> Copy;
  std::function<CudaResult(const ConvertRows& rows, CudaStream stream)> Convert;
  // The trainer's: the calling thread's current stream.
  std::function<CudaStream()> CurrentStream;
  std::function<const char*(CudaResult result)> GetErrorString;
};

}  // namespace muster
