// Calls of a worker to the file server of an account, as bytes: frames of bounded size over a
// stream socket, each a JSON object in CBOR. The other end may be anything that runs as the
// account, so nothing that it sends is relied on.
//
// Blocks until the deadline. Free functions; any thread.
#pragma once

#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/wire/messages.h"

namespace muster::worker {

inline constexpr std::size_t kMaxFrameBytes = 16 << 20;

// A connected pair, both ends close-on-exec.
Result<std::pair<UniqueFd, UniqueFd>> FramePair();

Status WriteFrame(int fd, const nlohmann::json& object, Deadline deadline);
// kUnavailable: the other end is gone. kDataLoss: it sent no object.
Result<nlohmann::json> ReadFrame(int fd, Deadline deadline);

// Messages as fields of a frame.
nlohmann::json Packed(const CoordinatorMessage& message);
nlohmann::json Packed(const WorkerMessage& message);
Result<CoordinatorMessage> UnpackOrder(const nlohmann::json& field);
Result<WorkerMessage> UnpackReport(const nlohmann::json& field);

// "code" and "message".
void AddStatus(const Status& status, nlohmann::json* object);
Status StatusIn(const nlohmann::json& object);

}  // namespace muster::worker
