// The audit trail: one line of JSON for each request that changes something, or was refused. Each
// line has the hash of the one before it, so a line that is changed, moved, added or taken away
// shows; at the end of the trail only a reader who has kept a later head sees it.
//
// A line is the entry as a JSON object without blanks, its keys in the order of AuditEntry, then
// "previous", the hash of the line before (of the first one: 64 zeros), then "hash": SHA-256, as 64
// lower-case hexadecimal digits, of the object as it is without "hash" (docs/users.md).
//
// Pure functions and plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

struct AuditEntry {
  std::uint64_t seq = 0;  // of the first entry 1; rises by one
  std::int64_t unix_ms = 0;
  std::string actor;      // who has proved its identity; "-": no identity was proved
  std::string as_user;    // for whom it acted; empty: itself
  std::string peer;       // address of the other end
  std::string request;    // id of the call
  std::string operation;  // "Cancel": the RPC's name
  std::string object;  // "job 3f2a…", "node n7", "queues version 4"; empty: nothing in particular
  std::string outcome;  // "OK", "PERMISSION_DENIED", ...
  std::string detail;   // what was changed, or why it was refused; may be empty
  friend bool operator==(const AuditEntry&, const AuditEntry&) = default;
};

// The end of a chain, or of a part of it.
struct AuditHead {
  std::uint64_t seq = 0;                    // of the newest entry; 0: there is none
  std::string hash = std::string(64, '0');  // of that line
  friend bool operator==(const AuditHead&, const AuditHead&) = default;
};

// The next line of the chain, without a newline; `head` becomes its end. The entry's seq is set
// here, and its texts are made valid UTF-8.
std::string SealAuditEntry(AuditEntry entry, AuditHead* head);

struct AuditLine {
  AuditEntry entry;
  std::string previous;
  std::string hash;

  AuditHead head() const { return {entry.seq, hash}; }
};
// kDataLoss: no line of an audit trail, or not as it was written: its hash is another one.
Result<AuditLine> ReadAuditLine(std::string_view line);

// The end of a chain that ends with this line, for a writer that continues it: verifying the trail
// finds a line that was changed. kDataLoss: it is no line of an audit trail.
Result<AuditHead> AuditHeadOf(std::string_view line);

// Checks lines in their order. The first one may be any; each later one must follow it.
class AuditVerifier {
 public:
  // `kept`: a head that was exported from this trail before; seq 0: none.
  explicit AuditVerifier(AuditHead kept = {}) : kept_(std::move(kept)) {}

  // kDataLoss says what is wrong with the line, by the number that it should have.
  Status Add(std::string_view line);
  // After the last line: kDataLoss if the kept head is not there.
  Status End() const;

  const AuditHead& first() const { return first_; }  // seq 0: there was no line
  const AuditHead& head() const { return head_; }

 private:
  AuditHead kept_;
  AuditHead first_;
  AuditHead head_;
  bool met_kept_ = false;
};

}  // namespace muster
