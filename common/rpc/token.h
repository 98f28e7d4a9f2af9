// The cluster's token: the secret that every RPC carries as "authorization: Bearer TOKEN".
//
// The coordinator makes the file with LoadOrCreateToken, mode 0600; workers and the CLI read it
// with LoadToken. A file that group or others may read is refused, because its content may already
// be known to another user.
//
// Free functions; any thread. The loading ones block.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "common/base/result.h"

namespace muster {

// Reads `path`, or makes it with 256 random bits as hexadecimal digits. Two processes that do so at
// once end with the same token. The directory must exist.
Result<std::string> LoadOrCreateToken(const std::string& path);

Result<std::string> LoadToken(const std::string& path);

// Metadata of a call: the user for whom an admin makes it.
inline constexpr char kAsUserKey[] = "muster-as";

void AttachToken(grpc::ClientContext& context, const std::string& token);

// OK, or UNAUTHENTICATED. Takes the same time whatever the presented token is.
grpc::Status CheckToken(const grpc::CallbackServerContext& context, const std::string& token);

}  // namespace muster
