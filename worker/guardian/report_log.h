// ReportLog: the reports of the ranks of the current generation, kept for a worker that reconnects.
//
// In the order of arrival and bounded: the newest are kept of each rank's repeating kinds (shards,
// notes, errors), and all that fit of the others. Pure; one owner.
#pragma once

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

  const std::deque<Entry>& entries() const { return entries_; }

 private:
  std::deque<Entry> entries_;
};

}  // namespace muster
