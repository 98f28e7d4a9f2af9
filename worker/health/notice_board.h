// NoticeBoard: what the node has to say of itself, and when it says it.
//
// Each matter has a key; setting it again with the same content changes nothing. A new matter is
// told at once, one that lasts once a second, and all of them when the stream to the coordinator
// was opened anew. When one is over, `clear` names what still holds, so that a receiver needs no
// keys; a new stream begins with one, because what ended meanwhile was told to nobody. Pure; time
// is an argument. Any one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/messages.h"

namespace muster::worker {

class NoticeBoard {
 public:
  // `until`: over by itself then.
  void Set(const std::string& key, NodeNotice notice, TimePoint now,
           TimePoint until = TimePoint::max());
  void Clear(const std::string& key);
  // All matters whose keys begin so.
  void ClearAll(const std::string& prefix);
  bool Has(const std::string& key) const { return matters_.contains(key); }

  // All is to be told again: the stream is a new one.
  void Reconnected();
  // What is to be told now.
  std::vector<NodeNotice> Due(TimePoint now);

  // What is the matter now, but for drains, as sentences without their full stops.
  std::vector<std::string> Troubles() const;

  // Matters by kind since the start, repetitions not counted.
  const std::map<NodeNoticeKind, std::uint64_t>& counts() const { return counts_; }

 private:
  struct Matter {
    NodeNotice notice;
    std::optional<TimePoint> deadline;  // of a drain; told as what remains of it
    TimePoint until;
    std::optional<TimePoint> told_at;
  };

  static NodeNotice Tell(Matter& matter, TimePoint now);
  void Over(const Matter& matter);

  std::map<std::string, Matter> matters_;
  std::string over_;  // matters that are over and not told so yet, as a clear's detail
  bool all_anew_ = false;
  std::map<NodeNoticeKind, std::uint64_t> counts_;
};

std::string_view NoticeKindName(NodeNoticeKind kind);  // drain, memory_pressure, ...

}  // namespace muster::worker
