#include "cli/jobs/job_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/base/exit_code.h"
#include "cli/jobs/goodput.h"
#include "common/job_spec/queue_names.h"

namespace muster {
namespace {

// "JOB_STATE_RUNNING" without its prefix, in lower case; an unset or newer state is "unknown".
std::string Word(const std::string& name, std::string_view prefix) {
  if (name.size() <= prefix.size()) return "unknown";
  std::string word = name.substr(prefix.size());
  if (word == "UNSPECIFIED") return "unknown";
  for (char& c : word)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return word;
}

Json IfKnown(bool known, const Json& value) { return known ? value : Json(nullptr); }
Json Seconds(double seconds) { return IfKnown(seconds >= 0, Json(seconds)); }
Json Number(double value) { return IfKnown(std::isfinite(value), Json(value)); }

const v1::RankProgress* ProgressOf(const v1::Job& job, int rank) {
  for (const auto& progress : job.progress())
    if (progress.rank() == rank) return &progress;
  return nullptr;
}

Json RankJson(const v1::Job& job, const v1::RankStatus& rank) {
  Json json = {{"rank", rank.rank()},
               {"node", TextOrNull(rank.node())},
               {"pid", IfKnown(rank.pid() > 0, rank.pid())},
               {"state", StateWord(rank.state())}};
  const bool exited = rank.has_exit();
  json["exit_code"] = IfKnown(exited && rank.exit().signal() == 0, rank.exit().exit_code());
  json["signal"] = IfKnown(exited && rank.exit().signal() != 0, SignalName(rank.exit().signal()));
  const v1::RankProgress* progress = ProgressOf(job, rank.rank());
  json["step"] = IfKnown(progress != nullptr, progress ? progress->step() : 0);
  json["phase"] = progress ? TextOrNull(PhaseWord(progress->phase())) : Json(nullptr);
  json["rss_bytes"] =
      IfKnown(progress && progress->rss_bytes() > 0, progress ? progress->rss_bytes() : 0);
  const bool on_device = progress && progress->device_capacity_bytes() > 0;
  json["device_bytes"] = IfKnown(on_device, on_device ? progress->device_bytes() : 0);
  json["device_capacity_bytes"] =
      IfKnown(on_device, on_device ? progress->device_capacity_bytes() : 0);
  json["process_state"] = progress ? TextOrNull(progress->process_state()) : Json(nullptr);
  const bool sealed = progress && progress->stores() > 0 && progress->snapshot_step() >= 0;
  json["snapshot_step"] = IfKnown(sealed, progress ? progress->snapshot_step() : 0);
  return json;
}

template <typename Texts>
Json ListJson(const Texts& texts) {
  Json list = Json::array();
  for (const auto& text : texts) list.push_back(text);
  return list;
}

Json CardJson(const v1::CauseCard& card) {
  return {{"what", TextOrNull(card.what())},
          {"step", card.step()},
          {"phase", TextOrNull(card.phase())},
          {"micro_batch", card.micro_batch()},
          {"last_collective", TextOrNull(card.last_collective())},
          {"facts", ListJson(card.facts())},
          {"advice", TextOrNull(card.advice())}};
}

Json AttemptJson(const v1::AttemptInfo& attempt) {
  const v1::StageSeconds& seconds = attempt.seconds();
  const bool timed = attempt.has_seconds();
  Json stages = {{"detect", timed ? Seconds(seconds.detect()) : Json(nullptr)},
                 {"abort", timed ? Seconds(seconds.abort()) : Json(nullptr)},
                 {"reform", timed ? Seconds(seconds.reform()) : Json(nullptr)},
                 {"load", timed ? Seconds(seconds.load()) : Json(nullptr)},
                 {"first_step", timed ? Seconds(seconds.first_step()) : Json(nullptr)}};
  return {{"generation", attempt.generation()},
          {"state", TextOrNull(attempt.state())},
          {"started", TimeOrNull(attempt.started_unix_ms())},
          {"ended", TimeOrNull(attempt.ended_unix_ms())},
          {"cause", TextOrNull(attempt.cause())},
          {"failed_rank",
           IfKnown(!attempt.cause().empty() && attempt.failed_rank() >= 0, attempt.failed_rank())},
          {"failed_node", TextOrNull(attempt.failed_node())},
          {"resumed_step", IfKnown(attempt.resumed_step() >= 0, attempt.resumed_step())},
          {"last_step", attempt.last_step()},
          {"lost_steps", attempt.lost_steps()},
          {"seconds", std::move(stages)},
          {"notes", ListJson(attempt.notes())},
          {"tier", TextOrNull(attempt.tier())},
          {"cause_kind", TextOrNull(attempt.cause_kind())},
          {"card", attempt.has_card() ? CardJson(attempt.card()) : Json(nullptr)},
          {"world_size", IfKnown(attempt.world_size() > 0, attempt.world_size())},
          {"nodes", ListJson(attempt.nodes())},
          {"spares", ListJson(attempt.spares())},
          {"lent", ListJson(attempt.lent())},
          {"resumed_from", TextOrNull(attempt.resumed_from())}};
}

Json SlowRankJson(const v1::SlowRank& slow) {
  return {{"rank", slow.rank()},
          {"node", TextOrNull(slow.node())},
          {"seconds", slow.seconds()},
          {"others_seconds", slow.others_seconds()},
          {"phase", TextOrNull(slow.phase())}};
}

Json SummaryJson(const v1::Job& job) {
  return {{"id", job.id()},
          {"name", job.name()},
          {"state", StateWord(job.state())},
          {"reason", TextOrNull(job.reason())},
          {"generation", job.generation()},
          {"step", job.step()},
          {"max_steps", IfKnown(job.max_steps() > 0, job.max_steps())},
          {"loss", HasLoss(job) ? Number(job.loss()) : Json(nullptr)},
          {"tokens_per_second", IfKnown(job.tokens_per_second() > 0, job.tokens_per_second())},
          {"eta_seconds",
           IfKnown(job.eta_seconds() >= 0 && !IsTerminal(job.state()), job.eta_seconds())},
          {"checkpoint_seconds", IfKnown(job.checkpoint_seconds() > 0, job.checkpoint_seconds())},
          {"restarts", job.restarts()},
          {"goodput", GoodputJson(job.goodput())},
          {"slow_rank", job.has_slow_rank() ? SlowRankJson(job.slow_rank()) : Json(nullptr)},
          {"owner", job.owner().empty() ? Json() : Json(job.owner())},
          {"submitter", job.submitter().empty() ? Json() : Json(job.submitter())},
          {"queue", QueueName(job.queue())},
          {"class", ClassName(job.priority_class())},
          {"priority", job.priority()},
          {"held", job.held()},
          {"begin", TimeOrNull(job.begin_unix_ms())},
          {"starts_by", TimeOrNull(job.promised_unix_ms())},
          {"time_limit_seconds", IfKnown(job.time_limit_seconds() > 0, job.time_limit_seconds())},
          {"world_size", IfKnown(job.world_size() > 0, job.world_size())},
          {"output_dir", TextOrNull(job.output_dir())},
          {"submitted", TimeOrNull(job.submitted_unix_ms())},
          {"started", TimeOrNull(job.started_unix_ms())},
          {"ended", TimeOrNull(job.ended_unix_ms())}};
}

}  // namespace

std::string StateWord(v1::JobState state) { return Word(v1::JobState_Name(state), "JOB_STATE_"); }
std::string StateWord(v1::NodeState state) {
  return Word(v1::NodeState_Name(state), "NODE_STATE_");
}
std::string StateWord(v1::RankState state) {
  return Word(v1::RankState_Name(state), "RANK_STATE_");
}
std::string PhaseWord(v1::TrainPhase phase) {
  if (phase == v1::TRAIN_PHASE_UNSPECIFIED) return "";
  return Word(v1::TrainPhase_Name(phase), "TRAIN_PHASE_");
}

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string RankWord(const v1::RankStatus& rank) {
  if (rank.state() != v1::RANK_STATE_EXITED || !rank.has_exit()) return StateWord(rank.state());
  if (rank.exit().signal() != 0) return "killed by " + SignalName(rank.exit().signal());
  return "exited " + std::to_string(rank.exit().exit_code());
}

bool HasLoss(const v1::Job& job) {
  return job.loss() != 0 || job.loss_at_start() != 0 || std::isnan(job.loss());
}

Json JobJson(const v1::Job& job) {
  Json json = SummaryJson(job);
  json["ranks"] = Json::array();
  for (const auto& rank : job.ranks()) json["ranks"].push_back(RankJson(job, rank));
  json["attempts"] = Json::array();
  for (const auto& attempt : job.attempts()) json["attempts"].push_back(AttemptJson(attempt));
  json["checkpoints"] = Json::array();
  for (const auto& checkpoint : job.checkpoints())
    json["checkpoints"].push_back(CheckpointJson(checkpoint));
  return json;
}

Json CheckpointJson(const v1::CheckpointInfo& checkpoint) {
  return {{"step", checkpoint.step()},
          {"generation", checkpoint.generation()},
          {"directory", checkpoint.directory()},
          {"committed", TimeOrNull(checkpoint.committed_unix_ms())},
          {"verified", TimeOrNull(checkpoint.verified_unix_ms())},
          {"refused", IfKnown(!checkpoint.refused().empty(), checkpoint.refused())},
          {"world_size", IfKnown(checkpoint.world_size() > 0, checkpoint.world_size())},
          {"bytes", IfKnown(!checkpoint.shards().empty(), CheckpointBytes(checkpoint))},
          {"eval_loss", IfKnown(checkpoint.has_eval_loss(), checkpoint.eval_loss())}};
}

std::uint64_t CheckpointBytes(const v1::CheckpointInfo& checkpoint) {
  std::uint64_t bytes = 0;
  for (const auto& shard : checkpoint.shards()) bytes += shard.bytes();
  return bytes;
}

Json JobListJson(const v1::ListJobsResponse& jobs) {
  Json list = Json::array();
  for (const auto& job : jobs.jobs()) list.push_back(SummaryJson(job));
  return list;
}

namespace {

Json DeviceJson(const v1::Device& device, const v1::Node& node) {
  const auto user = std::ranges::find(node.allocated(), device.id(), &v1::AllocatedDevice::id);
  return {{"id", device.id()},
          {"kind", TextOrNull(device.kind())},
          {"memory_bytes", IfKnown(device.memory_bytes() > 0, device.memory_bytes())},
          {"numa_node", IfKnown(device.numa_node() >= 0, device.numa_node())},
          {"link_domain", TextOrNull(device.link_domain())},
          {"fault", TextOrNull(device.fault())},
          {"fake", device.fake()},
          {"shared", device.shared()},
          {"job", user == node.allocated().end() ? Json(nullptr) : Json(user->job())}};
}

Json LabelsJson(const v1::NodeInventory& inventory) {
  Json labels = Json::object();
  for (const auto& label : inventory.labels()) labels[label.key()] = label.value();
  return labels;
}

}  // namespace

Json NodeJson(const v1::Node& node) {
  const v1::NodeInventory& inventory = node.inventory();
  Json devices = Json::array();
  for (const auto& device : inventory.devices()) devices.push_back(DeviceJson(device, node));
  return {{"name", node.name()},
          {"state", StateWord(node.state())},
          {"address", TextOrNull(node.address())},
          {"slots", node.slots()},
          {"slots_used", node.slots_used()},
          {"pid", IfKnown(node.pid() > 0, node.pid())},
          {"version", TextOrNull(node.version())},
          {"reason", TextOrNull(node.reason())},
          {"last_seen", TimeOrNull(node.last_seen_unix_ms())},
          {"failure_domain", TextOrNull(node.failure_domain())},
          {"pilot", TextOrNull(node.pilot())},
          {"notices", ListJson(node.notices())},
          {"drain_by", TimeOrNull(node.drain_by_unix_ms())},
          {"devices", devices},
          {"cpus", IfKnown(inventory.cpus() > 0, inventory.cpus())},
          {"cpus_used", node.cpus_used()},
          {"memory_bytes", IfKnown(inventory.memory_bytes() > 0, inventory.memory_bytes())},
          {"memory_bytes_used", node.memory_bytes_used()},
          {"labels", LabelsJson(inventory)},
          {"topology",
           {{"block", TextOrNull(inventory.block())},
            {"rack", TextOrNull(inventory.rack())},
            {"switch", TextOrNull(inventory.switch_())}}},
          {"report", ListJson(node.report())}};
}

Json NodeListJson(const v1::ListNodesResponse& nodes) {
  Json list = Json::array();
  for (const auto& node : nodes.nodes()) list.push_back(NodeJson(node));
  return list;
}

Json AmountsJson(const v1::Amounts& amounts) {
  return {{"gpus", amounts.gpus()}, {"slots", amounts.slots()}};
}

Json CeilingJson(const v1::Ceiling& ceiling) {
  Json json = {{"gpus", nullptr}, {"slots", nullptr}};
  if (ceiling.has_gpus()) json["gpus"] = ceiling.gpus();
  if (ceiling.has_slots()) json["slots"] = ceiling.slots();
  return json;
}

}  // namespace muster
