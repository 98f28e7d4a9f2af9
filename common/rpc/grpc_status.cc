#include "common/rpc/grpc_status.h"

#include <string>

namespace muster {
namespace {

// gRPC sends the message as HTTP/2 trailing metadata, which peers bound to 8 KiB by default; a
// longer one would turn a clear error into RESOURCE_EXHAUSTED. Escaping can triple its size.
constexpr std::size_t kMaxMessageBytes = 2000;

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message = status.message();
  if (message.size() > kMaxMessageBytes) message = message.substr(0, kMaxMessageBytes) + " ...";
  return {static_cast<grpc::StatusCode>(status.code()), std::move(message)};
}

Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return {known ? static_cast<StatusCode>(code) : StatusCode::kUnknown, status.error_message()};
}

}  // namespace muster
