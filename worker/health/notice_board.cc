#include "worker/health/notice_board.h"

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kRepeat{1};

}  // namespace

void NoticeBoard::Set(const std::string& key, NodeNotice notice, TimePoint now, TimePoint until) {
  const auto known = matters_.find(key);
  if (known != matters_.end()) {
    known->second.until = until;
    // A deadline runs down on its own: the first one counts.
    notice.deadline_seconds = known->second.notice.deadline_seconds;
    if (known->second.notice == notice) return;
  }
  if (known == matters_.end())
    ++counts_[notice.kind];
  else if (known->second.told_at && known->second.notice.detail != notice.detail)
    Over(known->second);
  Matter matter{.notice = std::move(notice), .until = until};
  if (matter.notice.deadline_seconds > 0) {
    const Duration left = FromSeconds(matter.notice.deadline_seconds);
    matter.deadline = known != matters_.end() ? known->second.deadline : now + left;
  }
  matters_[key] = std::move(matter);
}

void NoticeBoard::Clear(const std::string& key) {
  const auto known = matters_.find(key);
  if (known == matters_.end()) return;
  if (known->second.told_at) Over(known->second);
  matters_.erase(known);
}

void NoticeBoard::ClearAll(const std::string& prefix, const std::set<std::string>& lasting) {
  std::vector<std::string> keys;
  for (const auto& [key, matter] : matters_)
    if (key.starts_with(prefix) && !lasting.contains(key)) keys.push_back(key);
  for (const std::string& key : keys) Clear(key);
}

void NoticeBoard::Over(const Matter& matter) {
  over_ += (over_.empty() ? "over: " : "; ") + matter.notice.detail;
}

void NoticeBoard::Reconnected() {
  all_anew_ = true;
  for (auto& [key, matter] : matters_) matter.told_at.reset();
}

NodeNotice NoticeBoard::Tell(Matter& matter, TimePoint now) {
  matter.told_at = now;
  NodeNotice notice = matter.notice;
  // 0 would mean an unknown deadline.
  if (matter.deadline) notice.deadline_seconds = std::max(0.001, ToSeconds(*matter.deadline - now));
  return notice;
}

std::vector<NodeNotice> NoticeBoard::Due(TimePoint now) {
  std::vector<std::string> ended;
  for (const auto& [key, matter] : matters_)
    if (now >= matter.until) ended.push_back(key);
  for (const std::string& key : ended) Clear(key);
  std::vector<NodeNotice> due;
  for (auto& [key, matter] : matters_)
    if (!matter.told_at || now - *matter.told_at >= kRepeat) due.push_back(Tell(matter, now));
  if (std::exchange(all_anew_, false) || !over_.empty()) {
    NodeNotice clear{.kind = NodeNoticeKind::kClear, .detail = std::exchange(over_, "")};
    for (const auto& [key, matter] : matters_) clear.standing.push_back(matter.notice.detail);
    due.push_back(std::move(clear));
  }
  return due;
}

std::vector<std::string> NoticeBoard::Troubles() const {
  std::vector<std::string> troubles;
  for (const auto& [key, matter] : matters_)
    if (matter.notice.kind != NodeNoticeKind::kDrain &&
        matter.notice.kind != NodeNoticeKind::kDevicesInUse)
      troubles.push_back(matter.notice.detail);
  return troubles;
}

std::string_view NoticeKindName(NodeNoticeKind kind) {
  switch (kind) {
    case NodeNoticeKind::kDrain: return "drain";
    case NodeNoticeKind::kMemoryPressure: return "memory_pressure";
    case NodeNoticeKind::kXid: return "xid";
    case NodeNoticeKind::kDisk: return "disk";
    case NodeNoticeKind::kClear: return "clear";
    case NodeNoticeKind::kDevicesInUse: return "devices_in_use";
  }
  return "unknown";
}

}  // namespace muster::worker
