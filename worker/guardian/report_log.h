// ReportLog: what the ranks of the current generation have said, kept for a worker that reconnects.
//
// In the order of arrival and bounded: of each rank's repeating kinds (shards, notes, errors) the
// newest are kept, of the others all that fit. dropped() counts what gave way. Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace muster {

class ReportLog {
 public:
  struct Entry {
    int rank = 0;
    std::string kind;  // "type" of the message
    std::string json;
  };

  // Enough for the shards between two commits many times over.
  static constexpr int kMaxPerRankAndKind = 32;

  void Add(int rank, std::string kind, std::string json);
  void Clear();

  const std::deque<Entry>& entries() const { return entries_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::deque<Entry> entries_;
  std::uint64_t dropped_ = 0;
};

}  // namespace muster
