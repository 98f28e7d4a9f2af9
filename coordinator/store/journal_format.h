// The bytes of a journal's files: frames around payloads, operations within payloads, claims of
// epochs. docs/store-format.md shows them.
//
// Pure functions; any thread. Numbers are little-endian. Decoding fails with kDataLoss, which names
// the file and the offset of the first invalid byte; views point into what was decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/control/effects.h"

namespace muster {

enum class FrameKind : std::uint32_t { kCommit = 1, kSnapshot = 2 };

// What a file holds: commit `number`, or the state after it.
struct Frame {
  FrameKind kind = FrameKind::kCommit;
  std::uint64_t epoch = 0;  // of the coordinator that wrote it
  std::uint64_t number = 0;
  std::string_view payload;
};

std::string EncodeFrame(const Frame& frame);
Result<Frame> DecodeFrame(std::string_view bytes, const std::string& path);

// One operation of a payload. A snapshot is the list of operations that rebuilds its state.
struct JournalOperation {
  enum class Kind : std::uint8_t {
    kPutJob = 1,            // key: job
    kPutAttempt = 2,        // key: job, number: generation
    kPutCheckpoint = 3,     // key: job, name: directory
    kDeleteCheckpoint = 4,  // key: job, name: directory, no text
    kPutNode = 5,           // key: node
    kAppendEvent = 6,       // key: job, number: seq
    kBeginEpoch = 7,        // number: of the commit that this is; text: the claim
    kDeleteNode = 8,        // key: node, no text
    kArchiveJob = 9,        // key: job, text: what a start reads of it
    kDeleteArchived = 10,   // key: job, no text
    kPutArchivedTime = 11,
    kPutArchivedJob = 12,         // key: job
    kPutArchivedCheckpoint = 13,  // key: job, name: directory
    kPutQueues = 14,
    kPutQueueUsage = 15,     // key: queue
    kDeleteQueueUsage = 16,  // key: queue, no text
    kPutQueueDay = 17,       // key: queue, number: day
    kDeleteQueueDay = 18,    // key: queue, number: day, no text
    kPutUsers = 19,
    kAppendAudit = 20,   // number: seq, text: the line
    kPutSecret = 21,     // key: owner, name: QUEUE/NAME
    kDeleteSecret = 22,  // key: owner, name: QUEUE/NAME, no text
  };
  Kind kind = Kind::kPutJob;
  std::uint64_t number = 0;
  std::string_view key;
  std::string_view name;
  std::string_view text;  // the record as record_codec.h writes it
};

void AppendOperation(const JournalOperation& operation, std::string* payload);
void AppendOperation(const StoreOperation& operation, std::string* payload);
// Calls `function` for each in order; stops at the first unreadable one.
Status ForEachOperation(std::string_view payload,
                        const std::function<void(const JournalOperation&)>& function);

// The operation whose bytes these are; nothing for kBeginEpoch. kDataLoss says what is wrong with
// its record, or that it is another one than its key says.
Result<std::optional<StoreOperation>> DecodeOperation(const JournalOperation& operation);

// The owner of an epoch.
struct EpochClaim {
  std::uint64_t epoch = 0;
  std::string node;
  std::int64_t pid = 0;
  std::string address;  // the address it listens at; may be empty
  std::string page;     // HTTPS address of its page; may be empty
  bool ready = false;   // it answers there; before, it reads the state
  std::int64_t unix_ms = 0;
  std::string nonce;  // distinguishes two claims of one process

  // "epoch 3 on node n1 (pid 7)"
  std::string Text() const;
  friend bool operator==(const EpochClaim&, const EpochClaim&) = default;
};

std::string EncodeClaim(const EpochClaim& claim);
Result<EpochClaim> DecodeClaim(std::string_view text);

// Names of files: sixteen digits, so that a listing is in order. 0: not such a name.
std::string NumberedName(std::uint64_t number);
std::uint64_t NumberOfName(std::string_view name);

}  // namespace muster
