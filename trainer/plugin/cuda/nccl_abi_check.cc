// Holds the types of nccl_api.h against NCCL's own header, at compile time.

#include <nccl.h>

#include <type_traits>

#include "trainer/comm/transport/nccl/nccl_api.h"

namespace muster {
namespace {

static_assert(int{ncclUnhandledCudaError} == int(NcclResult::kUnhandledCudaError));
static_assert(int{ncclSystemError} == int(NcclResult::kSystemError));
static_assert(int{ncclInternalError} == int(NcclResult::kInternalError));
static_assert(int{ncclInvalidArgument} == int(NcclResult::kInvalidArgument));
static_assert(int{ncclInvalidUsage} == int(NcclResult::kInvalidUsage));
static_assert(int{ncclRemoteError} == int(NcclResult::kRemoteError));
static_assert(int{ncclInProgress} == int(NcclResult::kInProgress));
static_assert(sizeof(ncclResult_t) == sizeof(NcclResult));

static_assert(int{ncclUint8} == int(NcclType::kUint8));
static_assert(int{ncclInt64} == int(NcclType::kInt64));
static_assert(int{ncclFloat16} == int(NcclType::kFloat16));
static_assert(int{ncclFloat32} == int(NcclType::kFloat32));
static_assert(int{ncclFloat64} == int(NcclType::kFloat64));
static_assert(int{ncclBfloat16} == int(NcclType::kBFloat16));
static_assert(sizeof(ncclDataType_t) == sizeof(NcclType));

static_assert(int{ncclSum} == int(NcclOp::kSum));
static_assert(int{ncclMax} == int(NcclOp::kMax));
static_assert(int{ncclMin} == int(NcclOp::kMin));
static_assert(sizeof(ncclRedOp_t) == sizeof(NcclOp));

static_assert(sizeof(ncclUniqueId) == sizeof(NcclUniqueId));
static_assert(std::is_trivially_copyable_v<NcclUniqueId>);
static_assert(sizeof(cudaStream_t) == sizeof(CudaStream));

static_assert(offsetof(ncclConfig_t, size) == offsetof(NcclConfig, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(NcclConfig, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(NcclConfig, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(NcclConfig, blocking));

// The functions that the table is filled with, by the types of its entries.
template <typename Function>
constexpr int kArguments = -1;
template <typename R, typename... Args>
constexpr int kArguments<R(Args...)> = sizeof...(Args);
template <typename R, typename... Args>
constexpr int kArguments<std::function<R(Args...)>> = sizeof...(Args);

static_assert(kArguments<decltype(ncclCommInitRankConfig)> ==
              kArguments<decltype(NcclApi::CommInitRankConfig)>);
static_assert(kArguments<decltype(ncclAllGather)> == kArguments<decltype(NcclApi::AllGather)>);
static_assert(kArguments<decltype(ncclReduceScatter)> ==
              kArguments<decltype(NcclApi::ReduceScatter)>);
static_assert(kArguments<decltype(ncclAllReduce)> == kArguments<decltype(NcclApi::AllReduce)>);
static_assert(kArguments<decltype(ncclBroadcast)> == kArguments<decltype(NcclApi::Broadcast)>);
static_assert(kArguments<decltype(ncclSend)> == kArguments<decltype(NcclApi::Send)>);
static_assert(kArguments<decltype(ncclRecv)> == kArguments<decltype(NcclApi::Recv)>);
static_assert(kArguments<decltype(ncclCommGetAsyncError)> ==
              kArguments<decltype(NcclApi::CommGetAsyncError)>);

}  // namespace
}  // namespace muster
