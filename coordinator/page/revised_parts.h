// RevisedParts: a document in parts, for readers that receive only what has changed.
//
// Each part is JSON under a key ("job/7f3a9c1e2b", "rank/3") and knows the revision in which it
// last changed. So Since(R) is the newest state of what has changed since R, however long ago that
// was: the only state per reader is a number, and a slow reader skips states. Removed keys are kept
// up to kMaxGone; a reader from before that gets the whole document.
//
// Owned by the documents of the status page; pure, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace muster {

class RevisedParts {
 public:
  static constexpr std::size_t kMaxGone = 4096;

  // `json` is the text of one value, on one line. Equal text is no change.
  void Set(const std::string& key, std::string json);
  void Remove(const std::string& key);

  // 0: nothing was ever set.
  std::uint64_t revision() const { return revision_; }
  std::size_t size() const { return parts_.size(); }

  // {"now": MS, "whole": BOOL, "set": [[KEY, VALUE], ...], "gone": [KEY, ...]}, on one line.
  // If `revision` is 0 or too old: the whole document.
  std::string Since(std::uint64_t revision, std::int64_t now_unix_ms) const;

 private:
  struct Part {
    std::string json;
    std::uint64_t revision = 0;
  };

  std::map<std::string, Part> parts_;
  std::deque<std::pair<std::uint64_t, std::string>> gone_;  // oldest first
  std::uint64_t forgotten_ = 0;  // removals up to this revision are not in gone_
  std::uint64_t revision_ = 0;
};

}  // namespace muster
