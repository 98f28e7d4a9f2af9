#include "coordinator/page/page_json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/base/json.h"
#include "coordinator/detect/straggler_detector.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// Limit for one attempt or node; `muster describe` and `muster nodes` show the rest.
constexpr std::size_t kMaxNodes = 8;
constexpr std::size_t kMaxLines = 20;
constexpr std::size_t kMaxCheckpoints = 50;

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// As many digits as are visible, so that a message does not consist of the others.
Json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  return std::strtod(digits, nullptr);
}

Json PositiveOrNull(double value) { return value > 0 ? Number(value) : Json(nullptr); }
Json KnownOrNull(double value) { return value >= 0 ? Number(value) : Json(nullptr); }

template <typename Value>
Json FirstOf(const std::vector<Value>& values, std::size_t most) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(values.size(), most); ++i) out.push_back(values[i]);
  return out;
}

Json Names(const std::vector<NodeName>& nodes) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(nodes.size(), kMaxNodes); ++i) out.push_back(nodes[i].value);
  return out;
}

// A loss that is not a number is sent as such: it is the first thing to look at.
Json Loss(const JobRecord& record) {
  if (record.loss == 0 && record.loss_at_start == 0) return nullptr;
  return std::isfinite(record.loss) ? Number(record.loss) : Json("not finite");
}

std::uint64_t LargestRank(const std::vector<RankProgress>& progress) {
  std::uint64_t bytes = 0;
  for (const RankProgress& rank : progress) bytes = std::max(bytes, TrainingMemoryBytes(rank));
  return bytes;
}

// The smallest of GPUs of several sizes, which is full first; 0: there are none.
std::uint64_t SmallestDevice(const std::vector<RankProgress>& progress) {
  std::uint64_t bytes = 0;
  for (const RankProgress& rank : progress) {
    const std::uint64_t here = rank.device_capacity_bytes;
    if (here > 0) bytes = bytes == 0 ? here : std::min(bytes, here);
  }
  return bytes;
}

// What any rank says of the newest step; null without experts.
Json Routers(const std::vector<RankProgress>& progress) {
  for (const RankProgress& rank : progress) {
    if (rank.routers.largest_share <= 0) continue;
    return {{"largest_share", Number(rank.routers.largest_share)},
            {"smallest_share", Number(rank.routers.smallest_share)},
            {"entropy", Number(rank.routers.entropy)},
            {"idle", rank.routers.idle}};
  }
  return nullptr;
}

Json Card(const CauseCard& card) {
  return {{"what", card.what},
          {"step", card.step},
          {"phase", card.phase},
          {"micro_batch", card.micro_batch},
          {"last_collective", card.last_collective},
          {"facts", FirstOf(card.facts, kMaxLines)},
          {"advice", card.advice}};
}

Json Percentiles(const StepPercentiles& times) {
  if (times.steps == 0) return nullptr;
  return {{"steps", times.steps},
          {"p50", Number(times.p50)},
          {"p95", Number(times.p95)},
          {"p99", Number(times.p99)}};
}

Json Range(const CurveRange& range) {
  if (!range.known) return nullptr;
  return {Number(range.least), Number(range.greatest), Number(range.last)};
}

}  // namespace

std::string JsonText(std::string_view text) { return Text(Json(text)); }

std::string JobPart(const JobView& view) {
  const JobRecord& record = *view.record;
  return Text({{"id", record.id.value},
               {"name", record.name},
               {"state", Name(record.state)},
               {"reason", view.reason()},
               {"kind", view.spec != nullptr && !view.spec->train ? "command" : "train"},
               {"order", record.submit_order},
               {"priority", record.priority},
               {"queue", QueueName(record.queue)},
               {"planned_start", record.promise.start_unix_ms},
               {"generation", record.generation},
               {"restarts", record.restarts},
               {"ranks", view.world_size()},
               {"nodes", view.attempts->empty() ? 0 : view.attempts->back().nodes.size()},
               {"step", record.step},
               {"max_steps", record.max_steps},
               {"committed_step", record.committed_step},
               {"loss", Loss(record)},
               {"loss_at_start", PositiveOrNull(record.loss_at_start)},
               {"tokens_per_second", PositiveOrNull(view.tokens_per_second)},
               {"step_seconds", PositiveOrNull(view.step_seconds)},
               {"eta_seconds", KnownOrNull(view.eta_seconds)},
               {"slow_rank", view.straggler ? Json(view.straggler->rank) : Json(nullptr)},
               {"memory_bytes", LargestRank(*view.progress)},
               {"device_bytes", SmallestDevice(*view.progress)},
               {"routers", Routers(*view.progress)},
               {"submitted", record.submitted_unix_ms},
               {"started", record.started_unix_ms},
               {"ended", record.ended_unix_ms},
               {"output_dir", record.output_dir}});
}

std::string NodePart(const NodeView& view) {
  const NodeRecord& record = *view.record;
  std::vector<std::string> notices;
  for (const NoticeRecord& notice : record.notices) notices.push_back(notice.Text());
  return Text({{"name", record.name.value},
               {"state", Name(record.state)},
               {"reason", record.ShownReason()},
               {"address", record.address},
               {"domain", record.domain()},
               {"slots", record.slots},
               {"used", view.slots_used},
               {"gpus", std::popcount(view.allocatable)},
               {"gpus_used", UseOf(view).devices.size()},
               {"connected", view.connected},
               {"version", record.version},
               {"pilot", record.pilot},
               {"notices", FirstOf(notices, kMaxLines)}});
}

std::string QueuesPart(const QueuesView& queues) {
  if (queues.queues.size() < 2) return "null";
  Json list = Json::array();
  const auto amounts = [](const Amounts& has) {
    return Json{{"gpus", has.gpus}, {"slots", has.slots}};
  };
  const auto limit = [](int most) { return most == kNoCeiling ? Json(nullptr) : Json(most); };
  std::vector<int> depths;
  for (std::size_t i = 0; i < queues.queues.size(); ++i) {
    const QueueSpec& spec = queues.tree->queues[i];
    const QueueView& has = queues.queues[i];
    depths.push_back(spec.parent < 0 ? 0 : depths[static_cast<std::size_t>(spec.parent)] + 1);
    list.push_back(
        {{"name", spec.name},
         {"depth", depths.back()},
         {"guarantee", amounts(spec.guarantee)},
         {"ceiling", {{"gpus", limit(spec.ceiling.gpus)}, {"slots", limit(spec.ceiling.slots)}}},
         {"used", amounts(has.used)},
         {"running", has.running},
         {"waiting", has.waiting},
         {"share", Number(has.share)},
         {"had", std::round(1000 * has.usage_share) / 1000}});  // does not change all the time
  }
  return Text(list);
}

std::string EventPart(const EventRecord& event) {
  return Text({{"time", event.unix_ms},
               {"job", event.job.value},
               {"kind", event.kind},
               {"severity", Name(event.severity)},
               {"message", event.message}});
}

std::string AttemptPart(const AttemptRecord& attempt) {
  return Text({{"generation", attempt.generation},
               {"state", Name(attempt.state)},
               {"started", attempt.started_unix_ms},
               {"ended", attempt.ended_unix_ms},
               {"ranks", attempt.ranks.size()},
               {"nodes", Names(attempt.nodes)},
               {"node_count", attempt.nodes.size()},
               {"tier", Name(attempt.tier)},
               {"cause_kind", Name(attempt.cause_kind)},
               {"cause", attempt.cause},
               {"failed", IsFailure(attempt.cause_kind)},
               {"failed_rank", attempt.failed_rank},
               {"failed_node", attempt.failed_node.value},
               {"card", Card(attempt.card)},
               {"resumed_step", attempt.resumed_step},
               {"resumed_from", attempt.resumed_from},
               {"last_step", attempt.last_step},
               {"lost_steps", attempt.lost_steps},
               {"seconds",
                {{"detect", KnownOrNull(attempt.seconds.detect)},
                 {"abort", KnownOrNull(attempt.seconds.abort)},
                 {"reform", KnownOrNull(attempt.seconds.reform)},
                 {"load", KnownOrNull(attempt.seconds.load)},
                 {"first_step", KnownOrNull(attempt.seconds.first_step)}}},
               {"notes", FirstOf(attempt.notes, kMaxLines)},
               {"log_tail", FirstOf(attempt.log_tail, kMaxLines)}});
}

std::string RankPart(const RankRecord& rank, const RankProgress* progress) {
  Json json = {{"rank", rank.rank},
               {"node", rank.node.value},
               {"pid", rank.pid},
               {"state", Name(rank.state)}};
  if (rank.state == RankState::kExited) {
    json["exit_code"] = rank.end.exit.exit_code;
    json["signal"] = rank.end.exit.signal;
  }
  if (progress == nullptr) return Text(json);
  const double steps = static_cast<double>(progress->steps_done);
  json["step"] = progress->step;
  json["phase"] = TrainPhaseName(progress->phase);
  json["step_seconds"] = PositiveOrNull(progress->step_seconds);
  json["busy_seconds"] = steps > 0 ? Number(progress->busy_seconds / steps) : Json(nullptr);
  json["memory_bytes"] = TrainingMemoryBytes(*progress);
  json["device_bytes"] = progress->device_capacity_bytes;
  return Text(json);
}

std::string CheckpointsPart(const std::vector<CheckpointRecord>& checkpoints) {
  Json out = Json::array();
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    if (it->state != CheckpointState::kCommitted || out.size() >= kMaxCheckpoints) continue;
    std::uint64_t bytes = 0;
    for (const ShardInfo& shard : it->shards) bytes += shard.bytes;
    out.push_back({{"step", it->step},
                   {"directory", it->directory},
                   {"ranks", it->world_size},
                   {"bytes", bytes},
                   {"committed", it->committed_unix_ms},
                   {"verified", it->verified_unix_ms},
                   {"refused", it->refused},
                   {"eval_loss", it->evaluated ? Number(it->eval_loss) : Json(nullptr)}});
  }
  return Text(out);
}

std::string CellPart(const CurveCell& cell) {
  Json out = {cell.first, cell.last};
  for (const CurveRange& range : cell.ranges) out.push_back(Range(range));
  return Text(out);
}

std::string TimesPart(const StepDurations& times) {
  return Text({{"recent", Percentiles(times.Recent())}, {"all", Percentiles(times.All())}});
}

std::string GoodputPart(const Goodput& goodput) {
  Json states = Json::array();
  for (const TimeShare& share : goodput.Shares())
    states.push_back({{"state", share.state}, {"seconds", Number(share.seconds)}});
  return Text({{"ratio", KnownOrNull(goodput.ratio())}, {"states", states}});
}

}  // namespace muster
