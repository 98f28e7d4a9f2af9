#include <algorithm>
#include <chrono>

#include "coordinator/service/conversions.h"

namespace muster {
namespace {

constexpr int kMostBlockers = 32;

class AnswerWriter {
 public:
  AnswerWriter(const WhyQuestion& question, v1::ExplainJobResponse& out)
      : question_(question), out_(out) {
    if (question.waits) job_ = RequestOf(question.view->Known(), question.asked);
  }

  void Write(const Explanation& explanation) const;

 private:
  std::int64_t UnixMs(TimePoint at) const {
    return at == kNever ? 0 : UnixMillisOf(question_.view->now, at);
  }
  std::string NameOf(const JobId& job) const {
    const auto name = question_.view->names.find(job);
    return name == question_.view->names.end() ? "" : name->second;
  }
  std::int64_t LimitOf(const GangRequest& request) const {
    if (request.length == kForever) return 0;
    return std::chrono::floor<std::chrono::seconds>(request.length - question_.beyond_limit)
        .count();
  }
  // What it reaches stays where it is while time passes: a limit that is still right then.
  std::int64_t LimitAMinuteLater(const GangRequest& request) const {
    constexpr std::int64_t kMinute = 60;
    const std::int64_t limit = LimitOf(request);
    return limit > 2 * kMinute ? limit - kMinute : limit;
  }
  void Fill(const WaitCause& cause, v1::WaitCause& out) const;
  void Fill(const Blocker& blocker, v1::Blocker& out) const;
  void Fill(const Delay& delay, v1::PromiseDelay& out) const;
  void Fill(const Reclaim& reclaim, v1::Victim& out) const;
  void Fill(const Change& change, v1::AdmittingChange& out) const;
  void FillNames(const Change& change, v1::AdmittingChange& out) const;

  const WhyQuestion& question_;
  const GangRequest* job_ = nullptr;
  v1::ExplainJobResponse& out_;
};

void AnswerWriter::Fill(const WaitCause& cause, v1::WaitCause& out) const {
  out.set_code(std::string(Name(cause.code)));
  out.set_nodes(cause.nodes);
  if (cause.lack != Lack::kNothing) out.set_lack(std::string(Name(cause.lack)));
  out.set_state(cause.state);
  for (const NodeName& name : cause.names) out.add_names(name.value);
  out.set_job(cause.job.value);
  out.set_job_name(NameOf(cause.job));
  out.set_at_unix_ms(UnixMs(cause.at));
  out.set_text(cause.text);
  if (cause.code != WaitCode::kQuota) return;
  out.set_queue(cause.queue);
  out.set_of_user(cause.of_user);
  out.set_user(cause.user);
  *out.mutable_used() = ToProto(cause.used);
  *out.mutable_wanted() = ToProto(cause.wanted);
  *out.mutable_ceiling() = CeilingToProto(cause.ceiling);
}

void AnswerWriter::Fill(const Blocker& blocker, v1::Blocker& out) const {
  out.set_job(blocker.job.value);
  out.set_name(NameOf(blocker.job));
  out.set_nodes(blocker.nodes);
  out.set_in_queue(blocker.in_queue);
  out.set_waits(blocker.waits);
  out.set_at_unix_ms(UnixMs(blocker.at));
  out.set_predicted(blocker.predicted);
}

void AnswerWriter::Fill(const Delay& delay, v1::PromiseDelay& out) const {
  out.set_job(delay.job.value);
  out.set_name(NameOf(delay.job));
  out.set_promised_unix_ms(UnixMs(delay.promised));
  out.set_later_unix_ms(UnixMs(delay.later));
  out.set_cause(std::string(Name(delay.cause)));
}

void AnswerWriter::Fill(const Reclaim& reclaim, v1::Victim& out) const {
  out.set_job(reclaim.victim.value);
  out.set_name(NameOf(reclaim.victim));
  out.set_nodes(static_cast<int>(reclaim.gives_up.size()));
  out.set_cost(reclaim.cost);
  out.set_cause(std::string(Name(reclaim.cause)));
}

void AnswerWriter::Fill(const Change& change, v1::AdmittingChange& out) const {
  const GangRequest& now = change.request;
  const auto set = [&](auto from, auto value) {
    out.set_from(static_cast<std::int64_t>(from));
    out.set_value(static_cast<std::int64_t>(value));
  };
  out.set_key(std::string(Name(change.key)));
  for (const Delay& delay : change.delays) Fill(delay, *out.add_delays());
  for (const Reclaim& reclaim : change.reclaims) Fill(reclaim, *out.add_victims());
  out.set_start_unix_ms(UnixMs(change.start));
  switch (change.key) {
    case ChangeKey::kNodes: return set(job_->least(), now.nodes);
    case ChangeKey::kRanksPerNode: return set(job_->demand.ranks, now.demand.ranks);
    case ChangeKey::kGpusPerRank:
      return set(job_->demand.devices.per_rank, now.demand.devices.per_rank);
    case ChangeKey::kCpusPerRank: return set(job_->demand.cpus_per_rank, now.demand.cpus_per_rank);
    case ChangeKey::kMemoryPerRank:
      return set(job_->demand.memory_per_rank, now.demand.memory_per_rank);
    case ChangeKey::kTimeLimit: return set(LimitOf(*job_), LimitAMinuteLater(now));
    case ChangeKey::kGpuMemory:
      return set(job_->demand.devices.min_memory_bytes, now.demand.devices.min_memory_bytes);
    case ChangeKey::kClass: set(job_->class_value, now.class_value); break;
    default: break;
  }
  FillNames(change, out);
}

void AnswerWriter::FillNames(const Change& change, v1::AdmittingChange& out) const {
  const GangRequest& now = change.request;
  switch (change.key) {
    case ChangeKey::kGpuKind:
      for (const std::string& kind : job_->demand.devices.kinds) out.add_names(kind);
      return;
    case ChangeKey::kLabels:
      for (const LabelRule& rule : job_->demand.labels)
        if (std::ranges::count(now.demand.labels, rule) == 0) out.add_names(rule.Text());
      return;
    case ChangeKey::kTopology:
      out.add_names(std::string(Name(job_->demand.topology.within)));
      return;
    case ChangeKey::kExclude:
      for (const NodeName& name : job_->exclude)
        if (std::ranges::count(now.exclude, name) == 0) out.add_names(name.value);
      return;
    case ChangeKey::kClass:
      for (const PriorityClass& each : question_.view->shares.tree().classes)
        if (each.value == now.class_value && out.names().empty()) out.add_names(each.name);
      return;
    case ChangeKey::kQueue:
      out.add_names(std::string(QueueOfShare(
          question_.view->shares.tree().queues[static_cast<std::size_t>(now.queue)].name)));
      return;
    default: return;
  }
}

void AnswerWriter::Write(const Explanation& explanation) const {
  out_.set_index(question_.view->index);
  out_.set_waits(question_.waits);
  if (explanation.placement) {
    out_.set_starts_now(true);
    for (const NodeName& node : explanation.placement->nodes) out_.add_nodes(node.value);
  }
  const WaitingJob& waiting = explanation.waiting;
  if (waiting.promise) out_.set_promised_unix_ms(UnixMs(waiting.promise->start));
  for (const NodeName& node : waiting.collects) out_.add_collects(node.value);
  if (!explanation.placement && question_.waits) {
    out_.set_nodes_needed(waiting.reason.nodes);
    out_.set_nodes_ready(waiting.reason.ready);
    out_.set_nodes_with_room(waiting.reason.with_room);
  }
  out_.set_behind_planned(explanation.waiting.is_behind_planned);
  for (const WaitCause& cause : explanation.causes) Fill(cause, *out_.add_causes());
  for (const Blocker& blocker : explanation.blockers) {
    if (out_.blockers_size() == kMostBlockers)
      out_.set_more_blockers(out_.more_blockers() + 1);
    else
      Fill(blocker, *out_.add_blockers());
  }
  for (const Change& change : explanation.changes) Fill(change, *out_.add_changes());
  for (const Delay& delay : explanation.delays) Fill(delay, *out_.add_delays());
}

}  // namespace

v1::ExplainJobResponse ToProto(const WhyQuestion& question, const Explanation& explanation) {
  v1::ExplainJobResponse out;
  AnswerWriter(question, out).Write(explanation);
  return out;
}

}  // namespace muster
