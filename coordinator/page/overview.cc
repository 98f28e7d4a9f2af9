#include "coordinator/page/overview.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <set>

#include "common/base/json.h"
#include "common/base/version.h"
#include "coordinator/page/page_json.h"

namespace muster {
namespace {

constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;

std::vector<JobView> ShownOf(const std::vector<JobView>& jobs, const Now& now) {
  std::vector<JobView> live;
  std::vector<JobView> ended;
  for (const JobView& view : jobs) {
    if (!IsTerminal(view.record->state)) {
      live.push_back(view);
    } else if (now.unix_ms - view.record->ended_unix_ms < kDayMillis) {
      ended.push_back(view);
    }
  }
  if (ended.size() > Overview::kMaxEnded) {
    const auto last = ended.begin() + static_cast<std::ptrdiff_t>(Overview::kMaxEnded);
    std::nth_element(ended.begin(), last, ended.end(), [](const JobView& a, const JobView& b) {
      return a.record->ended_unix_ms > b.record->ended_unix_ms;
    });
    ended.erase(last, ended.end());
  }
  live.insert(live.end(), ended.begin(), ended.end());
  return live;
}

// To a tenth of a percent, so that the part does not change all the time; empty: there were no
// slots yet.
std::string RatioText(double ratio) {
  char text[16] = "";
  if (ratio >= 0) std::snprintf(text, sizeof text, "%.1f %%", 100 * ratio);
  return text;
}

std::string ClusterPart(const std::string& cluster, const std::vector<JobView>& jobs,
                        std::size_t hidden, const std::vector<NodeView>& nodes,
                        const Goodput& goodput) {
  std::map<std::string_view, int> job_states;
  for (const JobView& view : jobs) ++job_states[Name(view.record->state)];
  std::map<std::string_view, int> node_states;
  int slots = 0;
  int used = 0;
  int gpus = 0;
  std::size_t gpus_used = 0;
  for (const NodeView& view : nodes) {
    ++node_states[Name(view.record->state)];
    if (view.record->state == NodeState::kLost) continue;
    slots += view.record->slots;
    used += view.slots_used;
    gpus += std::popcount(view.allocatable);
    gpus_used += UseOf(view).devices.size();
  }
  return nlohmann::json({{"name", cluster},
                         {"version", kVersion},
                         {"jobs", job_states},
                         {"hidden_jobs", hidden},
                         {"nodes", node_states},
                         {"slots", slots},
                         {"used", used},
                         {"gpus", gpus},
                         {"gpus_used", gpus_used},
                         {"goodput", RatioText(goodput.ratio())}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Overview::Update(const Controller& controller, const Histories& histories, const Now& now) {
  std::vector<JobView> jobs = controller.Jobs();
  if (sees_) std::erase_if(jobs, [&](const JobView& job) { return !sees_(*job.record); });
  const std::vector<JobView> shown = ShownOf(jobs, now);
  const std::vector<NodeView> nodes = controller.Nodes();
  UpdateJobs(shown);
  UpdateNodes(nodes);
  events_.Update(controller.Events(), parts_, [&](const JobId& job) {
    return !sees_ || controller.FindJob(job.value, sees_).ok();
  });
  parts_.Set("cluster", ClusterPart(cluster_, shown, jobs.size() - shown.size(), nodes,
                                    controller.ClusterGoodput(now.mono)));
  parts_.Set("queues", QueuesPart(controller.Queues()));
  parts_.Set("problems", ProblemsPart(FindProblems(shown, nodes, histories, now)));
}

void Overview::UpdateJobs(const std::vector<JobView>& shown) {
  std::set<JobId> there;
  for (const JobView& view : shown) {
    const JobId& id = view.record->id;
    there.insert(id);
    const auto [known, fresh] = jobs_.try_emplace(id, view.version);
    if (!fresh && known->second == view.version) continue;
    known->second = view.version;
    parts_.Set("job/" + id.value, JobPart(view));
  }
  std::erase_if(jobs_, [&](const auto& job) {
    if (there.contains(job.first)) return false;
    parts_.Remove("job/" + job.first.value);
    return true;
  });
}

void Overview::UpdateNodes(const std::vector<NodeView>& nodes) {
  std::set<NodeName> there;
  for (const NodeView& view : nodes) {
    const NodeName& name = view.record->name;
    there.insert(name);
    ShownNode shown{*view.record, view.slots_used, UseOf(view).devices.size(), view.connected};
    shown.record.last_seen_unix_ms = 0;  // is not shown, and changes all the time
    const auto [known, fresh] = nodes_.try_emplace(name, shown);
    if (!fresh && known->second == shown) continue;
    known->second = std::move(shown);
    parts_.Set("node/" + name.value, NodePart(view));
  }
  std::erase_if(nodes_, [&](const auto& node) {
    if (there.contains(node.first)) return false;
    parts_.Remove("node/" + node.first.value);
    return true;
  });
}

}  // namespace muster
