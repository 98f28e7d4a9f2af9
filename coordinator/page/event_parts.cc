#include "coordinator/page/event_parts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/page/page_json.h"

namespace muster {

void EventParts::Update(const std::deque<EventRecord>& events, RevisedParts& parts,
                        const std::function<bool(const JobId& job)>& sees) {
  // From the newest on, so that a new document reads no more events than it shows.
  std::vector<const EventRecord*> fresh;
  for (auto event = events.rbegin(); event != events.rend() && event->seq > seen_; ++event) {
    if (!job_.empty() && event->job != job_) continue;
    if (sees && !event->job.empty() && !sees(event->job)) continue;
    fresh.push_back(&*event);
    if (fresh.size() == most_) break;
  }
  if (!events.empty()) seen_ = std::max(seen_, events.back().seq);
  for (auto event = fresh.rbegin(); event != fresh.rend(); ++event) {
    parts.Set("event/" + std::to_string((*event)->seq), EventPart(**event));
    shown_.push_back((*event)->seq);
  }
  for (; shown_.size() > most_; shown_.pop_front())
    parts.Remove("event/" + std::to_string(shown_.front()));
}

}  // namespace muster
