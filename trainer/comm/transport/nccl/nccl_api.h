// NcclApi: the functions of NCCL that Muster calls, as a table.
//
// The table is filled from libnccl.so.2 when a job needs it (LoadNccl), or by a test's substitute,
// so that everything above it runs without a GPU. No target links NCCL. The types repeat NCCL's
// binary interface, so that nothing here needs its header; nccl_abi_check.cc compares them with the
// header wherever the plug-in is built.
//
// The functions may be called from any thread, those on one NcclComm by one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "common/base/result.h"
#include "trainer/core/cuda_api.h"

namespace muster {

struct NcclComm;  // ncclComm, opaque

enum class NcclResult : int {  // ncclResult_t
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int {  // ncclDataType_t
  kUint8 = 1,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};

enum class NcclOp : int { kSum = 0, kMax = 2, kMin = 3 };  // ncclRedOp_t

struct NcclUniqueId {  // ncclUniqueId
  char internal[128] = {};
};

// ncclConfig_t as NCCL 2.14 had it; later releases read `version` and supply the rest themselves.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;  // calls return kInProgress instead of waiting for peers
};

struct NcclApi {
  std::function<NcclResult(int* version)> GetVersion;
  std::function<NcclResult(NcclUniqueId* id)> GetUniqueId;
  std::function<NcclResult(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                           NcclConfig* config)>
      CommInitRankConfig;
  std::function<NcclResult(NcclComm* comm)> CommFinalize;
  std::function<NcclResult(NcclComm* comm)> CommDestroy;
  std::function<NcclResult(NcclComm* comm)> CommAbort;
  std::function<NcclResult(NcclComm* comm, NcclResult* error)> CommGetAsyncError;
  std::function<NcclResult()> GroupStart;
  std::function<NcclResult()> GroupEnd;
  std::function<NcclResult(const void* send, void* receive, std::size_t count, NcclType type,
                           NcclComm* comm, CudaStream stream)>
      AllGather;
  std::function<NcclResult(const void* send, void* receive, std::size_t count, NcclType type,
                           NcclOp op, NcclComm* comm, CudaStream stream)>
      ReduceScatter;
  std::function<NcclResult(const void* send, void* receive, std::size_t count, NcclType type,
                           NcclOp op, NcclComm* comm, CudaStream stream)>
      AllReduce;
  std::function<NcclResult(const void* send, void* receive, std::size_t count, NcclType type,
                           int root, NcclComm* comm, CudaStream stream)>
      Broadcast;
  std::function<NcclResult(const void* send, std::size_t count, NcclType type, int peer,
                           NcclComm* comm, CudaStream stream)>
      Send;
  std::function<NcclResult(void* receive, std::size_t count, NcclType type, int peer,
                           NcclComm* comm, CudaStream stream)>
      Recv;
  std::function<const char*(NcclResult result)> GetErrorString;
  std::function<const char*(NcclComm* comm)> GetLastError;  // null: of the process
};

// Opens `library` ("libnccl.so.2", or a path); it stays open until the process ends.
// kFailedPrecondition says what is missing.
Result<NcclApi> LoadNccl(const std::string& library);

// 22809 -> "2.28.9".
std::string NcclVersionText(int version);

// NCCL 2.28.3 to 2.28.8 crash when a process that has aborted communicators makes new ones.
bool NcclCanFormAgain(int version);

}  // namespace muster
