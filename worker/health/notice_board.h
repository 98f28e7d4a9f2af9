// NoticeBoard: the notices of a node, and when they are sent.
//
// Each notice has a key; setting it again with the same content changes nothing. A new notice is
// sent at once, one that lasts once a second, and all of them when the stream to the coordinator
// was opened again. When one is over, `clear` names what still holds, so that a receiver needs no
// keys. It comes last: what one notice says and a newer one repeats holds all the time. A new
// stream has one, because there was no receiver for notices that ended in the meantime. Pure; time
// is an argument. Any one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/messages.h"

namespace muster::worker {

class NoticeBoard {
 public:
  // `until`: it expires then.
  void Set(const std::string& key, NodeNotice notice, TimePoint now,
           TimePoint until = TimePoint::max());
  void Clear(const std::string& key);
  // All notices whose keys begin with this, but for those of `lasting`.
  void ClearAll(const std::string& prefix, const std::set<std::string>& lasting = {});
  bool Has(const std::string& key) const { return matters_.contains(key); }

  // All must be sent again: the stream is a new one.
  void Reconnected();
  // The notices to send now.
  std::vector<NodeNotice> Due(TimePoint now);

  // What may be the cause of a failure, as sentences without their full stops.
  std::vector<std::string> Troubles() const;

  // Notices by kind since the start, without repetitions.
  const std::map<NodeNoticeKind, std::uint64_t>& counts() const { return counts_; }

 private:
  struct Matter {
    NodeNotice notice;
    std::optional<TimePoint> deadline;  // of a drain; sent as the remaining time
    TimePoint until;
    std::optional<TimePoint> told_at;
  };

  static NodeNotice Tell(Matter& matter, TimePoint now);
  void Over(const Matter& matter);

  std::map<std::string, Matter> matters_;
  std::string over_;  // notices that are over and not sent yet, as a clear's detail
  bool all_anew_ = false;
  std::map<NodeNoticeKind, std::uint64_t> counts_;
};

std::string_view NoticeKindName(NodeNoticeKind kind);  // drain, memory_pressure, ...

}  // namespace muster::worker
